// A pull worker. Needs go-redis:  go run worker.go [host:port]
package main

import (
	"encoding/json"
	"log"
	"os"
	"time"

	"gopkg.in/redis.v5" // as in Debian; go-redis v9 has client.Do
)

var lapsed = redis.NewClient(&redis.Options{Addr: append(os.Args, "127.0.0.1:6380")[1], ReadTimeout: 10 * time.Second})

func call(words ...interface{}) interface{} {
	cmd := redis.NewCmd(words...)
	if err := lapsed.Process(cmd); err != nil {
		log.Print(words[0], " ", err)
	}
	return cmd.Val()
}

func run(flat []interface{}) {
	task := map[interface{}]interface{}{}
	for i := 0; i < len(flat); i += 2 {
		task[flat[i]] = flat[i+1]
	}
	var mail struct{ Error string }
	if payload, ok := task["payload"].(string); ok {
		json.Unmarshal([]byte(payload), &mail)
	}
	if mail.Error != "" {
		call("LAPSED.FAIL", task["claim"], mail.Error, "PERMANENT")
		return
	}
	result, _ := json.Marshal(map[string]interface{}{"sent_to": task["args"]})
	call("LAPSED.DONE", task["claim"], "RESULT", string(result))
	log.Print(task["key"], " done") // what takes longer than `visibility` sends LAPSED.RENEW meanwhile
}

func main() {
	for {
		for _, task := range call("LAPSED.TAKE", "mail", "COUNT", 10, "BLOCK", 5000, "WORKER", "go").([]interface{}) {
			go run(task.([]interface{}))
		}
	}
}
