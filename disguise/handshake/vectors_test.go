package handshake

import (
	"bytes"
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/mlkem/mlkemtest"
	"encoding/hex"
	"encoding/json"
	"flag"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"heddle/disguise/block"
)

var update = flag.Bool("update", false, "write the test vectors")

// octets are bytes, in hexadecimal in JSON.
type octets []byte

func (o octets) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(o)), nil }

func (o *octets) UnmarshalText(text []byte) (err error) {
	*o, err = hex.DecodeString(string(text))
	return err
}

// vectors are what testdata/vectors.json holds. Its readers have docs/disguise-wire.md beside it.
type vectors struct {
	About     string      `json:"about"`
	Elligator []keyVector `json:"elligator2"`
	Bridge    struct {
		Private octets `json:"private"`
		Public  octets `json:"public"`
		Line    string `json:"line"`
	} `json:"bridge"`
	Hello  helloVector  `json:"hello"`
	Answer answerVector `json:"answer"`
	Join   joinVector   `json:"join"`
	Rekey  rekeyVector  `json:"rekey"`
}

type keyVector struct {
	Private        octets `json:"private"`
	Tweak          byte   `json:"tweak"`
	Point          octets `json:"point"` // u, with the point of low order
	Representative octets `json:"representative"`
}

type helloVector struct {
	Key     keyVector `json:"key"`
	Mode    byte      `json:"mode"`
	Time    int64     `json:"time"`
	Attempt octets    `json:"attempt"`
	Token   octets    `json:"token"`
	Cover   octets    `json:"cover"`
	Padding int       `json:"padding"`
	ES      octets    `json:"es"`
	Keys    octets    `json:"keys"` // header, body
	Bytes   octets    `json:"bytes"`
}

type answerVector struct {
	Key     keyVector `json:"key"`
	Link    uint32    `json:"link"`
	Time    int64     `json:"time"`
	Padding int       `json:"padding"`
	Keys    octets    `json:"keys"` // the first 192 bytes of K
	Bytes   octets    `json:"bytes"`
}

type joinVector struct {
	Key     keyVector `json:"key"`
	Time    int64     `json:"time"`
	Cover   octets    `json:"cover"`
	Padding int       `json:"padding"`
	Bytes   octets    `json:"bytes"`
}

type rekeyVector struct {
	ClientPrivate octets `json:"client_private"`
	ClientSeed    octets `json:"client_ml_kem_seed"` // d || z
	RKI           octets `json:"rki"`
	BridgePrivate octets `json:"bridge_private"`
	BridgeRandom  octets `json:"bridge_ml_kem_random"` // m
	RKR           octets `json:"rkr"`
	Keys          octets `json:"keys"` // the first 160 bytes of K
}

const aboutVectors = "All keys and messages of one link, in hexadecimal. A tweak has the multiple of the point of low order in bits 0 to 2, " +
	"which representative in bit 3, and the top bits of the representative in bits 6 and 7."

// source notes what it gave last.
type source struct {
	from io.Reader
	last []byte
}

func (s *source) Read(b []byte) (int, error) {
	n, err := io.ReadFull(s.from, b)
	s.last = bytes.Clone(b)
	return n, err
}

func (s *source) key(t *testing.T, own Representative) keyVector {
	t.Helper()
	point, err := own.point()
	if err != nil {
		t.Fatal(err)
	}
	return keyVector{s.last[:32], s.last[32], point.Bytes(), own[:]}
}

func private(t *testing.T, b []byte) *ecdh.PrivateKey {
	t.Helper()
	key, err := ecdh.X25519().NewPrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func joined(keys ...[32]byte) (b octets) {
	for _, key := range keys {
		b = append(b, key[:]...)
	}
	return b
}

// maker makes vectors with the randomness of old ones, or with new randomness if there are none.
type maker struct {
	t   *testing.T
	old vectors
	new *rand.ChaCha8
}

func (m maker) source(k keyVector) *source {
	if len(m.old.Elligator) > 0 {
		return &source{from: bytes.NewReader(append(bytes.Clone(k.Private), k.Tweak))}
	}
	return &source{from: m.new}
}

func (m maker) random(n int, old octets) octets {
	if old == nil {
		old = make(octets, n)
		_, _ = m.new.Read(old)
	}
	return old
}

func (m maker) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m maker) all() (v vectors) {
	v.About = aboutVectors
	for i := range 16 {
		var k keyVector
		if len(m.old.Elligator) > i {
			k = m.old.Elligator[i]
		}
		from := m.source(k)
		e, err := newEphemeral(from)
		m.must(err)
		v.Elligator = append(v.Elligator, from.key(m.t, e.public))
	}
	v.Bridge.Private = m.random(32, m.old.Bridge.Private)
	s, err := NewServer(Identity{private(m.t, v.Bridge.Private)}, new(Replays), []byte("secret"))
	m.must(err)
	v.Bridge.Public = s.public[:]
	v.Bridge.Line = Line{netip.MustParseAddrPort("192.0.2.7:443"), "", Args{s.public, []byte("secret"), []string{"random"}}}.String()
	client, server := m.link(s, &v)
	m.rekey(client, server, &v)
	return v
}

// link makes the messages that begin a link, and the secrets of its ends.
func (m maker) link(s *Server, v *vectors) (client, server Secrets) {
	h := Hello{Mode: 1, Time: now, Attempt: [16]byte(m.random(16, m.old.Hello.Attempt)), Token: []byte("secret"), Cover: []byte{1, 2, 3}}
	from := m.source(m.old.Hello.Key)
	p, err := start(from, s.public, h, 100)
	m.must(err)
	v.Hello = helloVector{from.key(m.t, p.own.public), h.Mode, h.Time.Unix(), h.Attempt[:], h.Token, h.Cover, 100, p.es,
		joined(p.keys.Header, p.keys.Body), p.Bytes()}
	_, a, err := s.Read(p.Bytes(), now)
	m.must(err)

	from = m.source(m.old.Answer.Key)
	answer, server, err := a.answer(from, 0xfeedbeef, now, 50)
	m.must(err)
	_, id, client, err := p.Finish(answer)
	m.must(err)
	same(m.t, client, server)
	v.Answer = answerVector{from.key(m.t, Representative(answer[:reprSize])), id, now.Unix(), 50,
		joined(client.Out.Header, client.Out.Body, client.In.Header, client.In.Body, client.chain, client.join), answer}

	from = m.source(m.old.Join.Key)
	rc, err := client.joinWith(from, s.public, id, []byte{1}, now, 10)
	m.must(err)
	v.Join = joinVector{from.key(m.t, Representative(rc[:reprSize])), now.Unix(), []byte{1}, 10, rc}
	return client, server
}

// rekey makes the messages that begin epoch 1.
func (m maker) rekey(client, server Secrets, v *vectors) {
	k := rekeyVector{ClientPrivate: m.random(32, m.old.Rekey.ClientPrivate), ClientSeed: m.random(mlkem.SeedSize, m.old.Rekey.ClientSeed),
		BridgePrivate: m.random(32, m.old.Rekey.BridgePrivate), BridgeRandom: m.random(32, m.old.Rekey.BridgeRandom)}
	kem, err := mlkem.NewDecapsulationKey768(k.ClientSeed)
	m.must(err)
	r, rki := startRekey(1, private(m.t, k.ClientPrivate), kem)
	encapsulate := func(e *mlkem.EncapsulationKey768) (shared, ciphertext []byte) {
		shared, ciphertext, err := mlkemtest.Encapsulate768(e, k.BridgeRandom)
		m.must(err)
		return shared, ciphertext
	}
	rkr, theirs, err := answerRekey(server, rki, private(m.t, k.BridgePrivate), encapsulate)
	m.must(err)
	ours, err := r.Finish(client, rkr)
	m.must(err)
	same(m.t, ours, theirs)
	k.RKI, k.RKR, k.Keys = rki, rkr, joined(ours.Out.Header, ours.Out.Body, ours.In.Header, ours.In.Body, ours.chain)
	v.Rekey = k
}

func TestVectors(t *testing.T) {
	file := filepath.Join("testdata", "vectors.json")
	if *update {
		text, err := json.MarshalIndent(maker{t, vectors{}, dice(77)}.all(), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want vectors
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if got := (maker{t, want, dice(77)}).all(); !reflect.DeepEqual(got, want) {
		text, _ := json.MarshalIndent(got, "", "  ")
		t.Errorf("the code gives other vectors:\n%s", text)
	}
	// A bridge and a client agree with each other by the file alone.
	s, err := NewServer(Identity{private(t, want.Bridge.Private)}, new(Replays))
	if err != nil {
		t.Fatal(err)
	}
	if l, err := ParseLine(want.Bridge.Line); err != nil || l.Key != s.public {
		t.Errorf("%v: %v", l, err)
	}
	if _, a, err := s.Read(want.Hello.Bytes, time.Unix(want.Hello.Time, 0)); err != nil || a.Keys() != block.KeysOf(want.Hello.Keys) {
		t.Errorf("hello: %v", err)
	}
	if _, a, err := s.Read(want.Join.Bytes, time.Unix(want.Join.Time, 0)); err != nil || !a.Joins(secretsOf(append(bytes.Clone(want.Answer.Keys), make([]byte, 128)...), false)) {
		t.Errorf("rc: %v", err)
	}
}
