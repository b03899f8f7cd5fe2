<?php

declare(strict_types=1);

require_once __DIR__ . '/PermanentFailure.php';
require_once __DIR__ . '/TimeLimitTask.php';

/** `tb_auction_goods.state` */
enum AuctionState: int
{
    case Open = 0;
    case Ended = 1; // the highest bidder has to pay
    case Sold = 2;
    case Void = 3; // not paid in time, the deposit is kept
}

/**
 * The deadlines of an auction. Each task may run more than once (at-least-once): it locks the auction, looks at its
 * state, and does nothing when that has been done already.
 */
final class AuctionCutDown extends TimeLimitTask
{
    public const PAY_WITHIN_S = 72 * 3600;

    /** Task: the auction ends now. */
    public function auctionEndCutDown(array $params): void
    {
        $id = self::auctionId($params);
        $this->transaction(function () use ($id): void {
            if ($this->lock($id) !== AuctionState::Open) {
                return;
            }
            $this->execute(
                'UPDATE tb_auction_goods SET state = ?, final_end_time = UNIX_TIMESTAMP() + MICROSECOND(NOW(3)) * 0.000001 WHERE id = ?',
                [AuctionState::Ended->value, $id],
            );
            $this->recording_process_mysql($this->key_splice('auctionEndCutDown', [$id]));
        });
        $this->redis->del("current_bid:$id");
    }

    /** Task: the time to pay is over. */
    public function dealCutDown(array $params): void
    {
        $id = self::auctionId($params);
        $this->transaction(function () use ($id): void {
            $state = $this->lock($id);
            if ($state === AuctionState::Open) {
                throw new RuntimeException("auction $id has not ended yet");
            }
            if ($state !== AuctionState::Ended) {
                return;
            }
            $this->execute('UPDATE tb_auction_goods SET state = ? WHERE id = ?', [AuctionState::Void->value, $id]);
            $this->recording_process_mysql($this->key_splice('dealCutDown', [$id]));
        });
    }

    public function auction_end_countdown_create(int $id, int $ttl): void
    {
        $this->create('auctionEndCutDown', $ttl, [$id]);
    }

    public function auction_end_countdown_delete(int $id): int|false
    {
        return $this->del_key('auctionEndCutDown', [$id]);
    }

    public function deal_countdown_create(int $id, int $ttl = 0): void
    {
        $this->create('dealCutDown', $ttl + self::PAY_WITHIN_S, [$id]);
    }

    public function deal_countdown_delete(int $id): int|false
    {
        return $this->del_key('dealCutDown', [$id]);
    }

    private static function auctionId(array $params): int
    {
        $id = (string) ($params[0] ?? '');
        if (count($params) !== 1 || !ctype_digit($id) || $id[0] === '0' || strlen($id) > 9) {
            throw new PermanentFailure('expected one argument, the number of an auction');
        }

        return (int) $id;
    }

    private function lock(int $id): AuctionState
    {
        $find = $this->db->prepare('SELECT state FROM tb_auction_goods WHERE id = ? FOR UPDATE');
        $find->execute([$id]);
        $state = $find->fetchColumn();
        if ($state === false) {
            throw new PermanentFailure("auction $id does not exist");
        }

        return AuctionState::from((int) $state);
    }
}
