package observe

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// conversations reads back what write wrote as one capture.
func conversations(t *testing.T, write func(write func(time.Duration, []byte))) []Conversation {
	t.Helper()
	dir := t.TempDir()
	captureFile(t, dir, "a", netip.MustParseAddr("10.0.1.2"), write)
	file, err := os.Open(filepath.Join(dir, "a.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all, stopped, err := Conversations(file)
	if err != nil || stopped != "" {
		t.Fatalf("stopped %q, %v", stopped, err)
	}
	return all
}

func TestConversationsArePutInOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := tcpStream{client: netip.MustParseAddrPort("10.0.1.2:50000"), server: netip.AddrPortFrom(webServer, 80)}
	said := make([]byte, 50_000)
	for i := range said {
		said[i] = byte(random.Uint32())
	}
	const first = 0xffff_f000 // the numbers wrap around on the way
	all := conversations(t, func(write func(time.Duration, []byte)) {
		write(0, s.segment(t, false, 7, false, []byte("before the beginning")))
		write(0, s.segment(t, true, first-1, true, nil))
		write(0, s.segment(t, false, 499, true, nil))
		starts := []int{}
		for at := 0; at < len(said); at += 1000 {
			starts = append(starts, at, at) // each twice
		}
		random.Shuffle(len(starts), func(i, j int) { starts[i], starts[j] = starts[j], starts[i] })
		for _, at := range starts {
			end := min(at+500+random.IntN(1500), len(said)) // longer and shorter than what is there
			write(0, s.segment(t, true, first+uint32(at), false, said[at:end]))
			write(0, s.segment(t, true, first+uint32(at), false, said[at:min(at+1000, len(said))]))
		}
		write(0, s.segment(t, false, 500, false, []byte("yes")))
		write(0, s.segment(t, false, 510, false, []byte("behind a gap")))
	})
	if len(all) != 1 {
		t.Fatalf("%d conversations", len(all))
	}
	c := all[0]
	if c.Client != s.client || c.Server != s.server || !bytes.Equal(c.Up, said) {
		t.Errorf("%v to %v, %d of %d bytes", c.Client, c.Server, len(c.Up), len(said))
	}
	if string(c.Down) != "yes" {
		t.Errorf("down %q", c.Down)
	}
}

func TestAPortUsedAgainIsAnotherConversation(t *testing.T) {
	s := tcpStream{client: netip.MustParseAddrPort("10.0.1.2:50000"), server: netip.AddrPortFrom(webServer, 80)}
	all := conversations(t, func(write func(time.Duration, []byte)) {
		for i, text := range []string{"one", "two"} {
			isn := uint32(i * 1000)
			write(0, s.segment(t, true, isn, true, nil))
			write(0, s.segment(t, true, isn, true, nil)) // a SYN that was sent again
			write(0, s.segment(t, true, isn+1, false, []byte(text)))
		}
	})
	if len(all) != 2 || string(all[0].Up) != "one" || string(all[1].Up) != "two" {
		t.Errorf("%d: %+v", len(all), all)
	}
}

func TestConversationsOfADamagedCapture(t *testing.T) {
	dir := t.TempDir()
	plainSession(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, "home.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	all, stopped, err := Conversations(bytes.NewReader(text[:len(text)*2/3]))
	if err != nil || !strings.Contains(stopped, "cut short") || len(all) != 1 || !bytes.HasPrefix(all[0].Up, []byte("GET /march.html")) {
		t.Errorf("%d conversations, stopped %q, %v", len(all), stopped, err)
	}
	if _, _, err := Conversations(strings.NewReader("no capture")); err == nil {
		t.Error("text was read as a capture")
	}
}

func TestArrivalOf(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	all := []Arrival{{End: 3, At: at(1)}, {End: 4, At: at(2)}}
	for offset, want := range []time.Time{at(1), at(1), at(1), at(2), {}, {}} {
		if got := ArrivalOf(all, offset); !got.Equal(want) {
			t.Errorf("byte %d came at %v, want %v", offset, got, want)
		}
	}
}
