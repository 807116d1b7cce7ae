package handshake

import (
	"bytes"
	"crypto/rand"
	"testing"
	"time"

	"heddle/disguise/block"
)

// held is how many messages the cache remembers.
func (r *Replays) held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// Nothing but the hello itself is accepted, and nothing else takes room in the replay cache.
func TestStrangers(t *testing.T) {
	replays := new(Replays)
	s, to := bridge(t, 1, replays, []byte("token"))
	_, another := bridge(t, 2, new(Replays))
	hello := func(to PublicKey, change func(h *Hello)) []byte {
		h := full()
		change(&h)
		return begun(t, to, h, 10).Bytes()
	}
	random := make([]byte, 9000)
	_, _ = rand.Read(random)
	for name, c := range map[string]struct {
		bytes []byte
		want  Reason
	}{
		"random":       {random, NoHello},
		"zeros":        {make([]byte, 9000), NoHello},
		"HTTP":         {append([]byte("GET / HTTP/1.1\r\nHost: "), bytes.Repeat([]byte("x"), 100)...), NoHello},
		"another key":  {hello(another, func(*Hello) {}), NoHello},
		"early":        {hello(to, func(h *Hello) { h.Time = now.Add(-MaxSkew - time.Second) }), Clock},
		"late":         {hello(to, func(h *Hello) { h.Time = now.Add(MaxSkew + time.Second) }), Clock},
		"1970":         {hello(to, func(h *Hello) { h.Time = time.Unix(0, 0) }), Clock},
		"no token":     {hello(to, func(h *Hello) { h.Token = nil }), NoToken},
		"wrong token":  {hello(to, func(h *Hello) { h.Token = []byte("tokem") }), NoToken},
		"longer token": {hello(to, func(h *Hello) { h.Token = []byte("tokens") }), NoToken},
	} {
		t.Run(name, func(t *testing.T) {
			_, a, err := s.Read(c.bytes, now)
			if a != nil {
				t.Fatal("accepted")
			}
			refused(t, err, c.want)
		})
	}
	one := hello(to, func(*Hello) {})
	for bit := range len(one) * 8 {
		changed := bytes.Clone(one)
		changed[bit/8] ^= 1 << (bit % 8)
		_, _, err := s.Read(changed, now)
		want := NoHello
		if bit/8 >= leastHello {
			want = Cut
		}
		refused(t, err, want)
	}
	for cut := range len(one) {
		if _, _, err := s.Read(one[:cut], now); err != ErrShort { //nolint:errorlint // as it is, without a reason
			t.Fatalf("%d bytes: %v", cut, err)
		}
	}
	if n := replays.held(); n != 0 {
		t.Errorf("strangers left %d records", n)
	}
	for name, at := range map[string]time.Time{"slow": now.Add(-MaxSkew), "fast": now.Add(MaxSkew)} {
		if _, _, err := s.Read(hello(to, func(h *Hello) { h.Time = at }), now); err != nil {
			t.Errorf("a clock that is %s: %v", name, err)
		}
	}
	before := bytes.Clone(one)
	if _, _, err := s.Read(one, now); err != nil || !bytes.Equal(one, before) {
		t.Fatalf("the hello itself, after all of this: %v", err)
	}
	_, _, err := s.Read(one, now)
	refused(t, err, Replayed)
	_, _, err = s.Read(append(one, "more"...), now)
	refused(t, err, Replayed)
	if n := replays.held(); n != 3 {
		t.Errorf("%d records of 3 hellos", n)
	}
}

// Messages that only somebody with the bridge's key can make, and that are wrong.
func TestWrongHellos(t *testing.T) {
	replays := new(Replays)
	s, to := bridge(t, 1, replays)
	nc, err := full().newClient()
	if err != nil {
		t.Fatal(err)
	}
	rc, err := Hello{Time: now, Cover: []byte{1}}.reconnect(make([]byte, proofSize))
	if err != nil {
		t.Fatal(err)
	}
	read := func(h block.Header, data []byte) error {
		p, err := begin(rand.Reader, to)
		if err != nil {
			t.Fatal(err)
		}
		h.Data = len(data)
		_, _, err = s.Read(block.NewCodec(p.keys).Seal(bytes.Clone(p.own.public[:]), h, data), now)
		return err
	}
	for f, data := range map[block.Function][]byte{block.NewClient: nc, block.Reconnect: rc} {
		for name, c := range map[string]struct {
			header block.Header
			data   []byte
		}{
			"version":   {block.Header{Function: f}, append([]byte{Version + 1}, data[1:]...)},
			"number":    {block.Header{Function: f, Number: 1}, data},
			"function":  {block.Header{Function: block.Data}, data},
			"the other": {block.Header{Function: block.NewClient + block.Reconnect - f}, data},
			"padding":   {block.Header{Function: f, Padding: MaxPadding + 1}, data},
			"more":      {block.Header{Function: f}, append(bytes.Clone(data), 0)},
			"less":      {block.Header{Function: f}, data[:len(data)-1]},
			"large":     {block.Header{Function: f}, append(bytes.Clone(data), make([]byte, 1000)...)},
			"empty":     {block.Header{Function: f}, nil},
		} {
			t.Run(name, func(t *testing.T) { refused(t, read(c.header, c.data), Cut) })
		}
		if err := read(block.Header{Function: f}, data); err != nil {
			t.Errorf("what is right: %v", err)
		}
	}
	if n := replays.held(); n != 1 {
		t.Errorf("%d records of one hello and one rc that joined nothing", n)
	}
}

// No eight bytes occur twice in what two ends send, however often they say the same.
func TestNoBytesAreShared(t *testing.T) {
	s, to := bridge(t, 1, new(Replays))
	client, _ := linked(t, s, to, full())
	seen := map[[8]byte]bool{}
	check := func(b []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at+8 <= len(b); at++ {
			if seen[[8]byte(b[at:])] {
				t.Fatal("bytes occur twice")
			}
			seen[[8]byte(b[at:])] = true
		}
	}
	h := full()
	for range 50 {
		p := begun(t, to, h, 200)
		check(p.Bytes(), nil)
		_, a, err := s.Read(p.Bytes(), now)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			answer, _, err := a.Answer(1, now, 200)
			check(answer, err)
		}
		check(client.Join(to, 7, nil, now, 200))
	}
}

// The cost of a stranger, and of a client without disk.
func BenchmarkRead(b *testing.B) {
	s, to := bridge(b, 1, new(Replays))
	b.Run("stranger", func(b *testing.B) {
		random := make([]byte, 1000)
		_, _ = rand.Read(random)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := s.Read(random, now); err == nil {
				b.Fatal("accepted")
			}
		}
	})
	b.Run("replay", func(b *testing.B) {
		hello := begun(b, to, full(), 500).Bytes()
		_, _, _ = s.Read(hello, now)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := s.Read(hello, now); err == nil {
				b.Fatal("accepted")
			}
		}
	})
	b.Run("link", func(b *testing.B) {
		for b.Loop() {
			linked(b, s, to, full())
		}
	})
}
