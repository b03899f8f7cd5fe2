module lapsed.test/asynq

go 1.19

require github.com/hibiken/asynq v0.24.1
