package mptcp

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"heddle/lab/labtest"
)

// What each network saw of a stream is put in place from its own capture, and is all of it together.
func TestWhatObserversOfSubflowsHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ipv4)
	dir, keys := t.TempDir(), filepath.Join(t.TempDir(), "keys")
	end := labtest.Capture(t, w.Instance, dir, map[string]string{"n1": "isp/n1", "n2": "isp/n2"})
	dial := w.stream("--backend", "mptcp", "--keylog", keys, "--via", "a=node:n1", "--via", "b=node:n2")
	const size = 3 << 20
	if err := exchange(w.connect(), size); err != nil {
		t.Fatalf("%v\n%s", err, dial.Log())
	}
	end()
	file := filepath.Join(t.TempDir(), "bytes")
	rebuild := func(args ...string) (seen, length int, got []byte) {
		t.Helper()
		out := w.Run("client", append([]string{"observe", "reconstruct", dir, "--keylog", keys, "--as", "bytes", "--out", file, "--json"}, args...)...)
		var answer struct {
			Schedule string
			Of       int
			Seen     int `json:"seen_bytes"`
			Length   int `json:"length_bytes"`
			Notes    []string
		}
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Schedule != "mptcp" || answer.Of != 2 {
			t.Errorf("%v: %+v", args, answer)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Seen, answer.Length, got
	}
	sent := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(sent)
	seen, length, whole := rebuild()
	if seen != length || !bytes.HasSuffix(whole, sent) {
		t.Fatalf("of all captures: %d of %d bytes, and %d were sent", seen, length, size)
	}
	sum := 0
	for _, node := range []string{"n1", "n2"} {
		seen, length, got := rebuild("--path", node)
		if length != len(whole) || seen < size/20 {
			t.Errorf("%s: %d of %d bytes", node, seen, length)
		}
		right := 0
		for i := range got {
			if got[i] == whole[i] {
				right++
			} else if got[i] != 0 {
				t.Fatalf("%s: byte %d is wrong", node, i)
			}
		}
		if right < seen {
			t.Errorf("%s: %d bytes are right, and %d were seen", node, right, seen)
		}
		sum += seen
	}
	if sum < length {
		t.Errorf("%d bytes of %d were seen by one or the other", sum, length)
	}
	if seen, _, _ := rebuild("--down"); seen < size {
		t.Errorf("what came back: %d bytes", seen)
	}
}
