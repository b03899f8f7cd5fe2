// Schedules tasks as a program with asynq does.
//
// Argument: the port of Redis. Input: [[name, delay in seconds]]. Output: [{"id", "due"}], in the same order.
package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/hibiken/asynq"
)

type written struct {
	ID  string `json:"id"`
	Due int64  `json:"due"`
}

func main() {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: "127.0.0.1:" + os.Args[1]})
	defer client.Close()
	var jobs [][2]interface{}
	must(json.NewDecoder(os.Stdin).Decode(&jobs))
	all := []written{}
	for number, job := range jobs {
		payload, err := json.Marshal(map[string]interface{}{"uid": job[0]})
		must(err)
		delay := time.Duration(job[1].(float64)) * time.Second
		when := asynq.ProcessIn(delay)
		if number%2 == 1 {
			when = asynq.ProcessAt(time.Now().Add(delay))
		}
		info, err := client.Enqueue(asynq.NewTask("order:close", payload), when)
		must(err)
		all = append(all, written{info.ID, info.NextProcessAt.UnixMilli()})
	}
	must(json.NewEncoder(os.Stdout).Encode(all))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
