package masque

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"heddle/path"
)

func TestOrderedDatagrams(t *testing.T) {
	for _, c := range []struct {
		data, want []byte
		place      uint64
		fails      bool
	}{
		{[]byte{2, 9, 'a', 'b'}, []byte("ab"), 9, false},
		{[]byte{2, 0x80, 1, 0, 0, 'a'}, []byte("a"), 1 << 16, false},
		{[]byte{2, 1}, []byte{}, 1, false},
		{[]byte{2, 0, 'a'}, []byte("a"), 0, false},
		{[]byte{0, 'a'}, []byte("a"), 0, false},
		{[]byte{4, 1, 'a'}, nil, 0, false}, // a context that was not offered
		{[]byte{2}, nil, 0, true},
		{[]byte{2, 0xc0, 1}, nil, 0, true},
		{append([]byte{2, 1}, make([]byte, MaxPayload+1)...), nil, 0, true},
	} {
		got, place, err := parse(c.data, true)
		if (err != nil) != c.fails || !bytes.Equal(got, c.want) || (got == nil) != (c.want == nil) || place != c.place {
			t.Errorf("%x: %x at %d, %v", c.data[:min(len(c.data), 16)], got, place, err)
		}
		if got, place, _ := parse(c.data, false); c.data[0] == contextOrder && (got != nil || place != 0) {
			t.Errorf("%x is read by who offered no context: %x at %d", c.data[:min(len(c.data), 16)], got, place)
		}
	}
}

func TestExitNames(t *testing.T) {
	for _, exit := range []uint64{1, 1 << 63, 0xfedcba9876543210} {
		if got, ok := ParseExitName(ExitName(exit)); got != exit || !ok {
			t.Errorf("%x: %x, %v", exit, got, ok)
		}
	}
	for _, bad := range []string{"", "2", "0000000000000000", "00000000000000001", "000000000000000g", "+000000000000001", "0x00000000000001"} {
		if got, ok := ParseExitName(bad); ok {
			t.Errorf("%q is taken: %x", bad, got)
		}
	}
}

func FuzzOrderedDatagram(f *testing.F) {
	f.Add([]byte{2, 9, 'a', 'b'})
	f.Add([]byte{2, 0xc0})
	f.Add([]byte{0x40, 2, 0x80, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, place, err := parse(data, true)
		if err != nil && payload != nil || payload == nil && place != 0 || !bytes.HasSuffix(data, payload) || place >= 1<<62 {
			t.Errorf("%x: %x at %d, %v", data, payload, place, err)
		}
		if payload == nil {
			return
		}
		again, same, err := parse(AppendOrdered(nil, place, payload), true)
		if err != nil || same != place || !bytes.Equal(again, payload) {
			t.Errorf("%x at %d comes back as %x at %d, %v", payload, place, again, same, err)
		}
	})
}

// The header is sent only for a session that wants the order, and the context is heard only where the proxy says that it
// uses it.
func TestOrderIsOfferedAndHeard(t *testing.T) {
	for _, c := range []struct {
		name           string
		session        string
		wants          bool
		answer         string
		offered, heard bool
	}{
		{"wanted", "one", true, "00000000000000ff", true, true},
		{"not wanted", "one", false, "00000000000000ff", false, false},
		{"no session", "", true, "", false, false},
		{"a proxy of another make", "one", true, "", true, false},
		{"a proxy that answers nonsense", "one", true, "2", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			offers := make(chan string, 1)
			b := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
				offers <- r.Header.Get(OrderHeader)
				if c.answer != "" {
					w.Header().Set(OrderHeader, c.answer)
				}
				hijack(t, func(s *http3.Stream) {
					s.SendDatagram(append([]byte{2, 7}, "seventh"...))
					s.SendDatagram(append([]byte{0}, "plain"...))
					<-s.Context().Done()
				})(w, r)
			})
			ctx, cancel := context.WithTimeout(path.WithSession(t.Context(), c.session), time.Minute)
			defer cancel()
			if c.wants {
				ctx = path.WithOrder(ctx)
			}
			f, err := b.way(t, "", "").Open(ctx, target)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if offer := <-offers; (offer != "") != c.offered || c.offered && offer != "2" {
				t.Errorf("offered %q", offer)
			}
			got := map[string]path.Inbound{}
			for into := make([]path.Inbound, 1); got["plain"].Data == nil || c.heard && got["seventh"].Data == nil; {
				if _, err := f.Receive(into); err != nil {
					t.Fatal(err)
				}
				got[string(into[0].Data)] = into[0]
			}
			exit := uint64(0)
			if c.heard {
				exit = 0xff
			}
			if in := got["plain"]; in.Exit != exit || in.Order != 0 {
				t.Errorf("without a place: %+v", in)
			}
			if in, ok := got["seventh"]; ok != c.heard || ok && (in.Exit != exit || in.Order != 7) {
				t.Errorf("with a place: %v, %+v", ok, in)
			}
		})
	}
}
