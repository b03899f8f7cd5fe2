<?php

declare(strict_types=1);

/** Running the task again cannot help: `lapsed` buries it instead of retrying. */
final class PermanentFailure extends RuntimeException
{
}
