// hiredis. Arguments: the port, and what the keys begin with. Prints the lines that `resp_clients/mod.rs` expects.
#include <stdio.h>
#include <stdlib.h>

#include <hiredis/hiredis.h>

static redisContext *redis;

static void show(const redisReply *reply) {
    if (reply == NULL) {
        printf("%s", redis->errstr);
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        printf("%lld", reply->integer);
    } else if (reply->type == REDIS_REPLY_NIL) {
        printf("nil");
    } else if (reply->type == REDIS_REPLY_ARRAY) {
        for (size_t i = 0; i < reply->elements; i++) {
            if (i > 0) printf(" ");
            show(reply->element[i]);
        }
    } else {
        printf("%.*s", (int)reply->len, reply->str);
    }
}

static void said(const char *step, void *reply) {
    printf("%s: ", step);
    show(reply);
    printf("\n");
    if (reply != NULL) freeReplyObject(reply);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *key = argv[2];
    redis = redisConnect("127.0.0.1", atoi(argv[1]));
    if (redis == NULL || redis->err) {
        fprintf(stderr, "connect: %s\n", redis ? redis->errstr : "no memory");
        return 1;
    }
    said("setex", redisCommand(redis, "SETEX %s1 1000 %s", key, "{\"order\":42}"));
    said("set px", redisCommand(redis, "SET %s2 %s PX 2000000", key, ""));
    said("ttl", redisCommand(redis, "TTL %s1", key));
    said("pttl", redisCommand(redis, "PTTL %s2", key));
    said("get", redisCommand(redis, "GET %s1", key));
    said("get missing", redisCommand(redis, "GET %s9", key));
    said("exists", redisCommand(redis, "EXISTS %s1 %s2 %s9", key, key, key));
    said("expire", redisCommand(redis, "EXPIRE %s2 3000", key));
    said("ttl moved", redisCommand(redis, "TTL %s2", key));
    said("del", redisCommand(redis, "DEL %s1", key));
    said("del again", redisCommand(redis, "DEL %s1", key));

    redisAppendCommand(redis, "SETEX %s3 1000 a", key);
    redisAppendCommand(redis, "SETEX %s4 1000 b", key);
    redisAppendCommand(redis, "EXISTS %s3", key);
    redisAppendCommand(redis, "DEL %s3", key);
    redisAppendCommand(redis, "TTL %s3", key);
    printf("pipeline:");
    for (int i = 0; i < 5; i++) {
        void *reply = NULL;
        redisGetReply(redis, &reply);
        printf(" ");
        show(reply);
        if (reply != NULL) freeReplyObject(reply);
    }
    printf("\n");

    freeReplyObject(redisCommand(redis, "MULTI"));
    freeReplyObject(redisCommand(redis, "SETEX %s5 1000 a", key));
    freeReplyObject(redisCommand(redis, "DEL %s4", key));
    freeReplyObject(redisCommand(redis, "PTTL %s9", key));
    said("multi", redisCommand(redis, "EXEC"));
    said("unknown", redisCommand(redis, "NOSUCH %s1 7", key));
    said("arity", redisCommand(redis, "SETEX %s1 10", key));
    redisFree(redis);
    return 0;
}
