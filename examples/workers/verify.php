<?php

declare(strict_types=1);

/**
 * Whether a webhook comes from who knows one of these secrets, and is at most five minutes old.
 *
 * `$body` is what arrived, byte for byte: `file_get_contents('php://input')`, before anything parses it.
 *
 * @param list<string> $secrets `whsec_...`
 */
function is_signed(string $id, string $timestamp, string $signatures, string $body, array $secrets, int $tolerance = 300): bool
{
    if (!ctype_digit($timestamp) || abs(time() - (int) $timestamp) > $tolerance) {
        return false;
    }
    foreach ($secrets as $secret) {
        $key = base64_decode(substr($secret, strlen('whsec_')), true);
        $wanted = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", (string) $key, true));
        foreach (explode(' ', $signatures) as $found) {
            if ($key && hash_equals($wanted, $found)) {
                return true;
            }
        }
    }

    return false;
}
