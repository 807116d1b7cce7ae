package path

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretNeverShows(t *testing.T) {
	secret := Secret("hunter2")
	held := struct{ S Secret }{secret}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		fmt.Fprintf(&out, verb+verb+verb, secret, &secret, held)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "secret", secret, "held", held)
	}
	if err := json.NewEncoder(&out).Encode(held); err != nil {
		t.Fatal(err)
	}
	text := strings.ToLower(out.String())
	if strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) || !strings.Contains(text, "(secret)") {
		t.Error(text)
	}
}
