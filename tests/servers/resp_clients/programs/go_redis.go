// go-redis. Arguments: the port, and what the keys begin with. Prints the lines that `resp_clients/mod.rs` expects.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"gopkg.in/redis.v5"
)

func main() {
	key := os.Args[2]
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	defer client.Close()

	answer := func(words ...interface{}) string {
		cmd := redis.NewCmd(words...)
		client.Process(cmd)
		return text(cmd)
	}
	fmt.Println("setex:", answer("SETEX", key+"1", 1000, `{"order":42}`))
	fmt.Println("set px:", client.Set(key+"2", "", 2000*time.Second+500*time.Millisecond).Val())
	fmt.Println("ttl:", client.TTL(key+"1").Val().Seconds())
	fmt.Println("pttl:", client.PTTL(key+"2").Val().Milliseconds())
	fmt.Println("get:", client.Get(key+"1").Val())
	_, err := client.Get(key + "9").Result()
	if err == redis.Nil {
		fmt.Println("get missing: nil")
	}
	fmt.Println("exists:", answer("EXISTS", key+"1", key+"2", key+"9"))
	moved := client.Expire(key+"2", 3000*time.Second).Val()
	fmt.Println("expire:", map[bool]int{true: 1, false: 0}[moved])
	fmt.Println("ttl moved:", client.TTL(key+"2").Val().Seconds())
	fmt.Println("del:", client.Del(key+"1").Val())
	fmt.Println("del again:", client.Del(key+"1").Val())

	pipe := client.Pipeline()
	pipe.Set(key+"3", "a", 1000*time.Second)
	pipe.Set(key+"4", "b", 1000*time.Second)
	pipe.Process(redis.NewCmd("EXISTS", key+"3"))
	pipe.Del(key + "3")
	pipe.Process(redis.NewCmd("TTL", key+"3"))
	answers, _ := pipe.Exec()
	fmt.Println("pipeline:", texts(answers))

	answers, _ = client.TxPipelined(func(pipe *redis.Pipeline) error {
		pipe.Set(key+"5", "a", 1000*time.Second)
		pipe.Del(key + "4")
		pipe.Process(redis.NewCmd("PTTL", key+"9"))
		return nil
	})
	fmt.Println("multi:", texts(answers))
	fmt.Println("unknown:", answer("NOSUCH", key+"1", 7))
	fmt.Println("arity:", answer("SETEX", key+"1", 10))
}

func texts(cmds []redis.Cmder) string {
	var all []string
	for _, cmd := range cmds {
		all = append(all, text(cmd))
	}
	return strings.Join(all, " ")
}

func text(cmd redis.Cmder) string {
	if cmd.Err() != nil {
		return cmd.Err().Error()
	}
	switch cmd := cmd.(type) {
	case *redis.StatusCmd:
		return cmd.Val()
	case *redis.IntCmd:
		return fmt.Sprint(cmd.Val())
	case *redis.Cmd:
		return fmt.Sprint(cmd.Val())
	}
	return fmt.Sprintf("%T", cmd)
}
