<?php

declare(strict_types=1);

// Takes webhooks:  LAPSED_WEBHOOK_SECRETS=whsec_... php -S 127.0.0.1:8080 receiver.php

require __DIR__ . '/verify.php';

// Separated by spaces: two while the key is being changed.
$secrets = explode(' ', getenv('LAPSED_WEBHOOK_SECRETS') ?: '');
$body = file_get_contents('php://input');
$head = fn (string $name): string => $_SERVER['HTTP_' . strtoupper(strtr($name, '-', '_'))] ?? '';
if (!is_signed($head('webhook-id'), $head('webhook-timestamp'), $head('webhook-signature'), $body, $secrets)) {
    // Tried again by lapsed: the keys here may be the ones that are wrong.
    http_response_code(401);
    exit('the signature is not right');
}
$task = json_decode($body, true);
if (($task['class'] ?? '') !== 'Hook') {
    http_response_code(422);
    header('lapsed-retry: no'); // trying again cannot help
    exit('unknown task');
}
// Here, in one transaction: insert $task['id'] into a table with a unique key, and do the work. Answer 2xx if it was there.
http_response_code(204);
error_log("received {$task['key']}, attempt {$task['attempt']}");
