<?php

declare(strict_types=1);

/**
 * The tasks that rows of `delay_queue` may name, as `Class::method`. Each gets the `data` of its row. It may run more than
 * once, for instance if its process is killed: check what is done already.
 */
return [
    'App\\Service\\Order::close' => static function (mixed $data): void {
        // (new App\Service\Order())->close($data);
        fwrite(STDERR, 'close order ' . json_encode($data) . "\n");
    },
];
