<?php
// Predis. Arguments: the port or the path of a socket, and what the keys begin with. Prints the lines that `resp_clients/mod.rs` expects.

require 'Predis/Autoloader.php';
Predis\Autoloader::register();

[, $port, $key] = $argv;
$redis = new Predis\Client($port[0] === '/' ? ['scheme' => 'unix', 'path' => $port] : ['host' => '127.0.0.1', 'port' => (int) $port]);

function said(string $step, mixed $answer): void
{
    $text = fn ($answer) => $answer === null ? 'nil' : (string) $answer;
    echo $step, ': ', is_array($answer) ? implode(' ', array_map($text, $answer)) : $text($answer), "\n";
}

said('setex', $redis->setex("{$key}1", 1000, '{"order":42}'));
said('set px', $redis->set("{$key}2", '', 'PX', 2000000));
said('ttl', $redis->ttl("{$key}1"));
said('pttl', $redis->pttl("{$key}2"));
said('get', $redis->get("{$key}1"));
said('get missing', $redis->get("{$key}9"));
said('exists', $redis->exists("{$key}1", "{$key}2", "{$key}9"));
said('expire', $redis->expire("{$key}2", 3000));
said('ttl moved', $redis->ttl("{$key}2"));
said('del', $redis->del("{$key}1"));
said('del again', $redis->del("{$key}1"));
said('pipeline', $redis->pipeline(function ($pipe) use ($key) {
    $pipe->setex("{$key}3", 1000, 'a');
    $pipe->setex("{$key}4", 1000, 'b');
    $pipe->exists("{$key}3");
    $pipe->del("{$key}3");
    $pipe->ttl("{$key}3");
}));
said('multi', $redis->transaction(function ($transaction) use ($key) {
    $transaction->setex("{$key}5", 1000, 'a');
    $transaction->del("{$key}4");
    $transaction->pttl("{$key}9");
}));
said('unknown', $redis->executeRaw(['NOSUCH', "{$key}1", '7']));
said('arity', $redis->executeRaw(['SETEX', "{$key}1", '10']));
