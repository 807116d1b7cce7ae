package handshake

import (
	"bytes"
	"crypto/ecdh"
	"crypto/mlkem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"heddle/disguise/block"
)

// dice is fixed randomness.
func dice(seed byte) *rand.ChaCha8 { return rand.NewChaCha8([32]byte{seed}) }

var now = time.Unix(1_780_000_000, 0)

// bridge is a server with its key.
func bridge(t testing.TB, seed byte, replays *Replays, tokens ...[]byte) (*Server, PublicKey) {
	t.Helper()
	var b [32]byte
	_, _ = dice(seed).Read(b[:])
	key, err := ecdh.X25519().NewPrivateKey(b[:])
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(Identity{key}, replays, tokens...)
	if err != nil {
		t.Fatal(err)
	}
	return s, s.public
}

func begun(t testing.TB, to PublicKey, h Hello, padding int) *Pending {
	t.Helper()
	p, err := Start(to, h, padding)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// linked are the secrets of both ends of a new link with number 7.
func linked(t testing.TB, s *Server, to PublicKey, h Hello) (client, server Secrets) {
	t.Helper()
	p := begun(t, to, h, 100)
	n, a, err := s.Read(p.Bytes(), now)
	if err != nil || n != len(p.Bytes()) {
		t.Fatalf("%d bytes of %d: %v", n, len(p.Bytes()), err)
	}
	if a.Keys() != p.Keys() {
		t.Error("the keys of fillers differ")
	}
	answer, server, err := a.Answer(7, now, 50)
	if err != nil {
		t.Fatal(err)
	}
	n, id, client, err := p.Finish(append(answer, "more"...))
	if err != nil || n != len(answer) || id != 7 || !p.BridgeTime().Equal(now) {
		t.Fatalf("%d bytes of %d, link %d at %v: %v", n, len(answer), id, p.BridgeTime(), err)
	}
	return client, server
}

// same fails unless two ends can talk.
func same(t testing.TB, client, server Secrets) {
	t.Helper()
	if client.Out != server.In || client.In != server.Out || client.chain != server.chain || client.join != server.join || client.Epoch != server.Epoch {
		t.Fatal("the two ends have different keys")
	}
	seen := map[[32]byte]bool{}
	for _, key := range [][32]byte{client.Out.Header, client.Out.Body, client.In.Header, client.In.Body, client.chain, client.join} {
		if seen[key] || key == [32]byte{} {
			t.Fatal("two keys are the same, or zero")
		}
		seen[key] = true
	}
}

// refused fails unless the error is of a stranger, for this reason.
func refused(t testing.TB, err error, want Reason) {
	t.Helper()
	why, ok := errors.AsType[*Refusal](err)
	if !ok || !errors.Is(err, ErrStranger) || why.Reason != want {
		t.Fatalf("%v, and not %s", err, want)
	}
}

func full() Hello {
	return Hello{Mode: 1, Time: now, Attempt: [16]byte{1, 2, 3}, Token: []byte("token"), Cover: []byte{1, 2, 3}}
}

func TestBothEndsAgree(t *testing.T) {
	s, to := bridge(t, 1, new(Replays), []byte("another"), []byte("token"), []byte("a third"))
	client, server := linked(t, s, to, full())
	same(t, client, server)
	other, _ := linked(t, s, to, full())
	if other.Out == client.Out {
		t.Error("two links have the same keys")
	}
}

func TestBridgeReadsWhatTheClientSays(t *testing.T) {
	s, to := bridge(t, 1, new(Replays))
	for _, h := range []Hello{full(), {Time: now}, {Time: now, Token: bytes.Repeat([]byte{1}, 255), Cover: bytes.Repeat([]byte{2}, 255)}} {
		_, a, err := s.Read(begun(t, to, h, 3).Bytes(), now)
		if err != nil || a.Reconnect {
			t.Fatal(err)
		}
		if fmt.Sprint(a.Hello) != fmt.Sprint(h) {
			t.Errorf("%v, and not %v", a.Hello, h)
		}
	}
	if n := len(begun(t, to, full(), 0).Bytes()); n != full().Size() {
		t.Errorf("a hello of %d bytes, and not %d", n, full().Size())
	}
	if n := (Hello{Token: make([]byte, MaxToken), Cover: make([]byte, 15)}).Size(); n > 128 {
		t.Errorf("a hello of %d bytes without padding", n)
	}
	for _, h := range []Hello{{Token: make([]byte, 256)}, {Cover: make([]byte, 256)}} {
		if _, err := Start(to, h, 0); err == nil {
			t.Errorf("%v fits", h)
		}
	}
	for _, token := range [][]byte{nil, make([]byte, MaxToken+1)} {
		if _, err := NewServer(s.identity, s.replays, token); err == nil {
			t.Errorf("a bridge has a token of %d bytes", len(token))
		}
	}
	for _, padding := range []int{-1, MaxPadding + 1} {
		if _, err := Start(to, full(), padding); err == nil {
			t.Errorf("a padding of %d", padding)
		}
	}
}

// Bytes arrive one by one. Each parser asks for exactly what it needs.
func TestShort(t *testing.T) {
	s, to := bridge(t, 1, new(Replays))
	p := begun(t, to, full(), 500)
	read := func(whole []byte, parse func([]byte) (int, error)) {
		t.Helper()
		calls, need := 0, 0
		for have := 0; ; have = need {
			n, err := parse(whole[:have])
			if calls++; err == nil && n == len(whole) && calls == 3 {
				return
			}
			if !errors.Is(err, ErrShort) || n <= have || n > len(whole) {
				t.Fatalf("with %d bytes of %d, call %d: %d, %v", have, len(whole), calls, n, err)
			}
			for between := have; between < n; between++ {
				if again, err := parse(whole[:between]); again > n || !errors.Is(err, ErrShort) {
					t.Fatalf("with %d bytes: %d, %v", between, again, err)
				}
			}
			need = n
		}
	}
	var a *Accepted
	read(p.Bytes(), func(b []byte) (n int, err error) { n, a, err = s.Read(b, now); return n, err })
	answer, _, err := a.Answer(1, now, 500)
	if err != nil {
		t.Fatal(err)
	}
	read(answer, func(b []byte) (n int, err error) { n, _, _, err = p.Finish(b); return n, err })
}

func TestJoin(t *testing.T) {
	s, to := bridge(t, 1, new(Replays), []byte("token"))
	client, server := linked(t, s, to, full())
	other, _ := linked(t, s, to, full())
	rc := func(of Secrets) *Accepted {
		b, err := of.Join(to, 7, []byte{9}, now, 20)
		if err != nil {
			t.Fatal(err)
		}
		n, a, err := s.Read(append(b, "blocks"...), now)
		if err != nil || n != len(b) || !a.Reconnect || a.Link != 7 || string(a.Cover) != "\x09" || !a.Time.Equal(now) {
			t.Fatalf("%v, %d bytes of %d: %v", a, n, len(b), err)
		}
		return a
	}
	a := rc(client)
	if a.Joins(other) || !a.Joins(server) || a.Joins(server) {
		t.Error("an rc joins another link, or not its own, or twice")
	}
	if rc(other).Joins(server) {
		t.Error("a stranger joined the link")
	}
	if _, _, err := a.Answer(1, now, 0); err == nil {
		t.Error("an rc got an answer")
	}
	b, _ := client.Join(to, 7, nil, now, 20)
	if len(b) != JoinSize(nil)+20 {
		t.Errorf("an rc of %d bytes", len(b))
	}
	_, first, _ := s.Read(b, now)
	_, second, _ := s.Read(b, now)
	if !first.Joins(server) || second.Joins(server) {
		t.Error("a copy of an rc joined while the first was looked at")
	}
	_, _, err := s.Read(b, now)
	refused(t, err, Replayed)
}

func TestRekey(t *testing.T) {
	s, to := bridge(t, 1, new(Replays))
	client, server := linked(t, s, to, full())
	for epoch := 1; epoch < 300; epoch += 100 {
		client.Epoch, server.Epoch = byte(epoch-1), byte(epoch-1)
		for _, pair := range [][2]*Secrets{{&client, &server}, {&server, &client}} {
			r, rki := StartRekey(byte(epoch))
			rkr, theirs, err := AnswerRekey(*pair[1], rki)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := r.Finish(*pair[0], rkr)
			if err != nil {
				t.Fatal(err)
			}
			if ours.Out == pair[0].Out || ours.join != pair[0].join {
				t.Error("the keys stayed, or the join key did not")
			}
			if pair[0] == &server {
				ours, theirs = theirs, ours
			}
			same(t, ours, theirs)
		}
		epoch++
	}
}

// New keys depend on the old chain key, on X25519 and on ML-KEM: whoever has only two of them has other keys.
func TestRekeyNeedsEachSecret(t *testing.T) {
	s, to := bridge(t, 1, new(Replays))
	client, server := linked(t, s, to, full())
	r, rki := StartRekey(1)
	rkr, next, err := AnswerRekey(server, rki)
	if err != nil {
		t.Fatal(err)
	}
	finish := func(change func(r *Rekey, s *Secrets)) Secrets {
		copied, secrets := *r, client
		change(&copied, &secrets)
		got, err := copied.Finish(secrets, rkr)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	same(t, finish(func(*Rekey, *Secrets) {}), next)
	other, _ := StartRekey(1)
	for name, change := range map[string]func(r *Rekey, s *Secrets){
		"X25519": func(r *Rekey, _ *Secrets) { r.private = other.private },
		"ML-KEM": func(r *Rekey, _ *Secrets) { r.kem = other.kem },
		"chain":  func(_ *Rekey, s *Secrets) { s.chain[0] ^= 1 },
		"rki":    func(r *Rekey, _ *Secrets) { r.rki = append(bytes.Clone(r.rki[:len(r.rki)-1]), r.rki[len(r.rki)-1]^1) },
	} {
		if got := finish(change); got.Out == next.In || got.In == next.Out || got.chain == next.chain {
			t.Errorf("%s does not matter", name)
		}
	}
}

func TestRekeyRefuses(t *testing.T) {
	s, to := bridge(t, 1, new(Replays))
	client, server := linked(t, s, to, full())
	r, rki := StartRekey(1)
	rkr, _, err := AnswerRekey(server, rki)
	if err != nil {
		t.Fatal(err)
	}
	change := func(b []byte, f func(b []byte) []byte) []byte { return f(bytes.Clone(b)) }
	for name, f := range map[string]func(b []byte) []byte{
		"empty":     func(b []byte) []byte { return nil },
		"short":     func(b []byte) []byte { return b[:len(b)-1] },
		"long":      func(b []byte) []byte { return append(b, 0) },
		"epoch":     func(b []byte) []byte { b[0]++; return b },
		"low order": func(b []byte) []byte { copy(b[1:33], make([]byte, 32)); return b },
	} {
		if _, err := r.Finish(client, change(rkr, f)); !errors.Is(err, ErrRekey) {
			t.Errorf("rkr, %s: %v", name, err)
		}
		if _, _, err := AnswerRekey(server, change(rki, f)); !errors.Is(err, ErrRekey) {
			t.Errorf("rki, %s: %v", name, err)
		}
	}
	outside := change(rki, func(b []byte) []byte {
		copy(b[33:], bytes.Repeat([]byte{255}, mlkem.EncapsulationKeySize768))
		return b
	})
	if _, _, err := AnswerRekey(server, outside); !errors.Is(err, ErrRekey) {
		t.Errorf("a key outside of ML-KEM: %v", err)
	}
	server.Epoch = 1
	if _, _, err := AnswerRekey(server, rki); !errors.Is(err, ErrRekey) {
		t.Errorf("an old rki: %v", err)
	}
}

func TestFinishTakesOnlyTheAnswer(t *testing.T) {
	s, to := bridge(t, 1, new(Replays))
	p := begun(t, to, full(), 0)
	_, a, err := s.Read(p.Bytes(), now)
	if err != nil {
		t.Fatal(err)
	}
	answer, keys, err := a.Answer(1, now, 3)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(answer) * 8 {
		changed := bytes.Clone(answer)
		changed[bit/8] ^= 1 << (bit % 8)
		if _, _, _, err := p.Finish(changed); !errors.Is(err, ErrAnswer) {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
	if _, _, _, err := begun(t, to, full(), 0).Finish(answer); !errors.Is(err, ErrAnswer) {
		t.Errorf("another's answer: %v", err)
	}
	for _, h := range []block.Header{{Data: nsSize, Function: block.NewServer, Number: 1}, {Data: nsSize, Function: block.Data},
		{Data: nsSize + 1, Function: block.NewServer}, {Data: nsSize, Function: block.NewServer, Padding: MaxPadding + 1}} {
		b := block.NewCodec(keys.Out).Seal(bytes.Clone(answer[:reprSize]), h, make([]byte, h.Data))
		if _, _, _, err := p.Finish(b); !errors.Is(err, ErrAnswer) {
			t.Errorf("%+v: %v", h, err)
		}
	}
	var zero [1000]byte // a representative of a point of low order
	if _, _, _, err := p.Finish(zero[:]); !errors.Is(err, ErrAnswer) {
		t.Errorf("a point of low order: %v", err)
	}
	if len(answer) != AnswerSize+3 {
		t.Errorf("an answer of %d bytes", len(answer))
	}
	if _, _, _, err := p.Finish(answer); err != nil {
		t.Errorf("the answer itself, after all of this: %v", err)
	}
}

func TestNothingPrintsSecrets(t *testing.T) {
	s, to := bridge(t, 1, new(Replays))
	client, _ := linked(t, s, to, full())
	if text := fmt.Sprintf("%v %+v %#v %x %s %v", client, client, client, &client, client, []Secrets{client}); text != "(secrets) (secrets) (secrets) (secrets) (secrets) [(secrets)]" {
		t.Error(text)
	}
}

func TestShapeBelongsToTheBridge(t *testing.T) {
	_, a := bridge(t, 1, new(Replays))
	_, b := bridge(t, 2, new(Replays))
	draw := func(k PublicKey, label string) (out [16]byte) {
		_, _ = io.ReadFull(k.Draw(label), out[:])
		return out
	}
	if first, again := draw(a, "x"), draw(a, "x"); first != again || first == draw(b, "x") || first == draw(a, "y") {
		t.Error("the numbers of a bridge are not its own")
	}
	mean := func(k PublicKey) (m float64) {
		for range 2000 {
			n := k.Padding("hello")
			if n < 0 || n > MaxPadding {
				t.Fatal(n)
			}
			m += float64(n) / 2000
		}
		return m
	}
	if first, again, other := mean(a), mean(a), mean(b); max(first-again, again-first) > 40 || max(first-other, other-first) < 40 {
		t.Errorf("means of paddings: %.0f and %.0f, another bridge %.0f", first, again, other)
	}
}
