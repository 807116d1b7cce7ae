package stripe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"heddle/identity"
	"heddle/internal/connlimit"
	"heddle/internal/segment"
	"heddle/internal/tlsbatch"
	"heddle/stripe/share"
)

// dialRaw gives a TLS connection of the client to the listener, to say what it likes.
func (w *world) dialRaw(id identity.Identity) *link {
	w.t.Helper()
	raw, err := w.roads[0].Dial(context.Background(), w.options().To)
	if err != nil {
		w.t.Fatal(err)
	}
	config, err := id.Client(w.server.Key(), Protocol)
	if err != nil {
		w.t.Fatal(err)
	}
	k := newLink(raw, tlsbatch.Client(raw, config))
	if err := k.handshake(time.Minute); err != nil {
		w.t.Fatal(err)
	}
	return k
}

func data(d segment.Data, payload int) []byte {
	b := make([]byte, segment.DataOverhead+payload)
	d.Put(b, payload)
	return b
}

// lastWord reads until the other side sends a close, or ends.
func lastWord(k *link) (segment.Close, error) {
	for {
		kind, body, err := k.reader.Next(func(n int) []byte { return make([]byte, n) })
		if err != nil {
			return segment.Close{}, err
		}
		if kind == segment.KindClose {
			return segment.ParseClose(body)
		}
	}
}

var goodHello = segment.Hello{Session: [16]byte{1}, Members: 1, MinMembers: 1, Segment: DefaultSegment, Limit: 1 << 20, Frames: 1, Schedule: Strict, Shares: "none", Service: "test"}

// A peer that was let in and breaks the protocol loses its session, and hears why.
func TestViolationsEndTheSession(t *testing.T) {
	const payload = 100
	good := data(segment.Data{Frame: 1, Size: payload}, payload)
	for name, c := range map[string]struct {
		say  []byte
		want string
	}{
		"no frame":            {[]byte{99, 0, 0, 0}, "kind 99"},
		"a second hello":      {goodHello.Append(nil), "out of place"},
		"a welcome":           {segment.Welcome{}.Append(nil), "out of place"},
		"acks of nothing":     {segment.Ack{Units: 1}.Append(nil), "of which 0 were sent"},
		"a size that lies":    {data(segment.Data{Frame: 1, Size: payload + 1}, payload), "for 101 of the stream"},
		"a gap":               {data(segment.Data{Frame: 1, Offset: 5, Size: payload}, payload), "is at 5, not at 0"},
		"far ahead":           {data(segment.Data{Frame: 1, Unit: segment.MaxAhead + 1, Size: payload}, payload), "while unit 0"},
		"beyond the window":   {data(segment.Data{Frame: 1, Offset: 1 << 40, Size: payload}, payload), "more than it may send"},
		"too long":            {data(segment.Data{Frame: 1, Size: 20000}, 20000), "20000 bytes for"},
		"behind the end":      {append(segment.Fin{}.Append(nil), data(segment.Data{Frame: 1, Unit: 1, Size: payload}, payload)...), "behind the end"},
		"an end in between":   {append(bytes.Clone(good), segment.Fin{}.Append(nil)...), "ends before"},
		"an end elsewhere":    {append(bytes.Clone(good), segment.Fin{Unit: 1, Offset: 107}.Append(nil)...), "ends at 100, not at 107"},
		"two ends":            {append(segment.Fin{Unit: 9, Offset: 9}.Append(nil), segment.Fin{Unit: 8, Offset: 9}.Append(nil)...), "two ends"},
		"done before the end": {segment.Close{Code: segment.Complete}.Append(nil), "before the end"},
		"complete, no end":    {append(segment.Fin{}.Append(nil), segment.Close{Code: segment.Complete}.Append(nil)...), "has no end"},
		"a short ack":         {[]byte{byte(segment.KindAck), 0, 0, 1, 0}, "where there should be 16"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, ListenOptions{}, &road{delay: ms})
				k := w.dialRaw(w.client)
				if _, err := k.tls.Write(append(goodHello.Append(nil), c.say...)); err != nil {
					t.Fatal(err)
				}
				last, err := lastWord(k)
				if err != nil || last.Code != segment.Failed || !strings.Contains(last.Why, c.want) {
					t.Errorf("%+v, %v", last, err)
				}
				k.shut()
				w.listener.Close()
				time.Sleep(10 * second)
				if n := len(w.listener.Sessions()); n != 0 {
					t.Errorf("%d sessions are left", n)
				}
			})
		})
	}
}

func TestHellosThatAreRefused(t *testing.T) {
	change := func(f func(*segment.Hello)) segment.Hello {
		h := goodHello
		f(&h)
		return h
	}
	for name, c := range map[string]struct {
		hello segment.Hello
		want  string
	}{
		"schedule":  {change(func(h *segment.Hello) { h.Schedule = "round" }), "no schedule"},
		"shares":    {change(func(h *segment.Hello) { h.Shares = "9of9" }), "shares 9of9 take 9 paths, and there are 1"},
		"no shares": {change(func(h *segment.Hello) { h.Shares = "half" }), "no way to share"},
		"segment":   {change(func(h *segment.Hello) { h.Segment = 64 }), "segments of 64"},
		"members":   {change(func(h *segment.Hello) { h.Members, h.MinMembers = 200, 200 }), "200 paths"},
		"unknown":   {change(func(h *segment.Hello) { h.Flags = segment.Resume }), "not known here any more"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, ListenOptions{}, &road{delay: ms})
			k := w.dialRaw(w.client)
			if _, err := k.tls.Write(c.hello.Append(nil)); err != nil {
				t.Fatal(err)
			}
			last, err := lastWord(k)
			if err != nil || last.Code != segment.Refused || !strings.Contains(last.Why, c.want) {
				t.Errorf("%s: %+v, %v", name, last, err)
			}
			k.shut()
			w.listener.Close()
			time.Sleep(10 * second)
		})
	}
}

// Others cannot join a session, whatever id they guess, and one peer cannot take all places.
func TestSessionsArePrivateAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{MaxSessions: 4, Accept: func(identity.Key) error { return nil }}, &road{delay: ms})
		other, err := identity.New()
		if err != nil {
			t.Fatal(err)
		}
		hello := func(id identity.Identity, n byte) (*link, segment.Kind) {
			k := w.dialRaw(id)
			h := goodHello
			h.Session[0] = n
			if _, err := k.tls.Write(h.Append(nil)); err != nil {
				t.Fatal(err)
			}
			kind, _, err := k.reader.Next(takeBuffer)
			if err != nil {
				t.Fatal(err)
			}
			return k, kind
		}
		var open []*link
		for _, c := range []struct {
			who  identity.Identity
			n    byte
			want segment.Kind
		}{
			{w.client, 1, segment.KindWelcome},
			{other, 1, segment.KindClose}, // another's session
			{w.client, 2, segment.KindWelcome},
			{w.client, 3, segment.KindClose}, // half of the places are taken
			{other, 4, segment.KindWelcome},
		} {
			k, kind := hello(c.who, c.n)
			open = append(open, k)
			if kind != c.want {
				t.Errorf("session %d: a frame of kind %d, and %d was due", c.n, kind, c.want)
			}
		}
		for _, c := range w.listener.Sessions() {
			c.Abort("the test is over")
		}
		for _, k := range open {
			k.shut()
		}
		w.listener.Close()
		time.Sleep(10 * second)
	})
}

// Strangers who only connect have so many places, and so long.
func TestStrangersDoNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: ms})
		var conns []net.Conn
		for range 2 * connlimit.Strangers.Source {
			raw, err := w.roads[0].Dial(context.Background(), w.options().To)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, raw)
		}
		synctest.Wait()
		if n := w.listener.Strangers(); n != connlimit.Strangers.Source {
			t.Errorf("%d strangers are here, and %d may be", n, connlimit.Strangers.Source)
		}
		time.Sleep(6 * second)
		if n := w.listener.Strangers(); n != 0 {
			t.Errorf("%d strangers are still here", n)
		}
		client, server := w.open(w.options())
		closeBoth(t, client, server)
		for _, c := range conns {
			c.Close()
		}
		w.listener.Close()
	})
}

// rot changes each share that one member sends, as somebody could who broke its TLS.
func TestAChangedShareNamesThePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log safeBuffer
		w := newWorld(t, ListenOptions{Log: slog.New(slog.NewTextHandler(&log, nil))},
			&road{delay: 10 * ms, rate: 1e6}, &road{delay: 10 * ms, rate: 1e6}, &road{delay: 20 * ms, rate: 1e6})
		o := w.options()
		o.Shares = "2of3"
		client, server := w.open(o)
		synctest.Wait()
		server.mu.Lock()
		server.spy = func(member int, _ segment.Data, payload []byte) {
			if member == 1 {
				payload[len(payload)/2] ^= 4
			}
		}
		server.mu.Unlock()
		want := noise(1, 300_000)
		go func() { _ = send(client, want, 64<<10) }()
		got, err := io.ReadAll(server)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		named := regexp.MustCompile(`path=(\d+) why="it changed its share`).FindAllStringSubmatch(log.String(), -1)
		if len(named) == 0 || slices.ContainsFunc(named, func(m []string) bool { return m[1] != "2" }) {
			t.Errorf("path 2, and no other, is to be named:\n%s", log.String())
		}
		closeBoth(t, client, server)
		w.listener.Close()
	})
	var changed *share.ChangedError
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms}, &road{delay: 10 * ms})
		o := w.options()
		o.Shares = "xor:2"
		client, server := w.open(o)
		server.mu.Lock()
		server.spy = func(member int, _ segment.Data, payload []byte) { payload[0] ^= byte(member) }
		server.mu.Unlock()
		go func() { _ = send(client, noise(1, 1000), 1000) }()
		_, err := io.ReadAll(server)
		if err == nil || errors.As(err, &changed) || !strings.Contains(err.Error(), "changed by one or more of the paths 1 2") {
			t.Errorf("%v", err)
		}
		server.Close()
		client.Close()
		w.listener.Close()
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ListenOptions{}, &road{delay: 10 * ms})
		o := w.options()
		o.Window = 1
		client, server := w.open(o)
		start := time.Now()
		_ = client.SetReadDeadline(start.Add(second))
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		_ = client.SetWriteDeadline(time.Now().Add(5 * second))
		n, err := client.Write(make([]byte, 64<<20)) // nobody reads
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > 2*firstWindow+minRing {
			t.Errorf("%d bytes, %v", n, err)
		}
		go func() { _, _ = io.Copy(io.Discard, server) }()
		_ = client.SetDeadline(time.Time{})
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		_ = server.Close()
		w.listener.Close()
	})
}

// Rubbish of somebody who was let in: whatever it is, nothing hangs and nothing panics.
func FuzzPeer(f *testing.F) {
	f.Add(data(segment.Data{Frame: 1, Size: 3}, 3), uint64(1))
	f.Add(segment.Fin{Unit: 3}.Append(segment.Ack{Units: 1}.Append(nil)), uint64(2))
	f.Add(segment.AppendPing(segment.Close{Code: segment.Closed}.Append(nil), segment.KindPing, 1), uint64(3))
	f.Fuzz(func(t *testing.T, say []byte, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, ListenOptions{Patience: second}, &road{delay: ms})
			k := w.dialRaw(w.client)
			h := goodHello
			if rand.New(rand.NewPCG(seed, 0)).IntN(2) == 0 {
				h.Members, h.MinMembers, h.Shares = 3, 1, "none"
			}
			if _, err := k.tls.Write(append(h.Append(nil), say...)); err != nil {
				t.Fatal(err)
			}
			go func() {
				if c, err := w.listener.Accept(); err == nil {
					_, _ = io.Copy(c, c)
					_ = c.Close()
				}
			}()
			time.Sleep(second)
			k.shut()
			time.Sleep(time.Minute)
			w.listener.Close()
			time.Sleep(time.Minute)
			if n := len(w.listener.Sessions()); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
		})
	})
}
