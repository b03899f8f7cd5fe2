package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// IsSigned tells whether a webhook comes from who knows one of these secrets (`whsec_...`), and is at most five minutes
// old. The body is what arrived, byte for byte: io.ReadAll(request.Body).
func IsSigned(header http.Header, body []byte, secrets []string) bool {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	sent, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return false
	}
	for _, secret := range secrets {
		coded := strings.TrimRight(strings.TrimPrefix(secret, "whsec_"), "=")
		key, err := base64.RawStdEncoding.DecodeString(coded)
		if err != nil || len(key) == 0 {
			continue
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		wanted := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for _, found := range strings.Split(header.Get("webhook-signature"), " ") {
			if hmac.Equal([]byte(wanted), []byte(found)) {
				return true
			}
		}
	}
	return false
}
