package handshake

import (
	"bytes"
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/mlkem/mlkemtest"
	"errors"
	"testing"

	"heddle/disguise/block"
)

// Fuzzed data goes in as it is, and also sealed as somebody with the right keys would: else no fuzzer gets past the header.

func FuzzHello(f *testing.F) {
	nc, _ := full().newClient()
	rc, _ := full().reconnect(make([]byte, proofSize))
	f.Add(byte(block.NewClient), nc)
	f.Add(byte(block.Reconnect), rc)
	f.Add(byte(block.Data), []byte{})
	s, to := bridge(f, 1, new(Replays))
	p, err := begin(dice(9), to)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, function byte, data []byte) {
		if _, a, err := s.Read(data, now); a != nil || !errors.Is(err, ErrStranger) && !errors.Is(err, ErrShort) {
			t.Fatalf("%v: %v", a, err)
		}
		if len(data) > block.MaxData {
			return
		}
		s.replays = new(Replays)
		b := block.NewCodec(p.keys).Seal(bytes.Clone(p.own.public[:]), block.Header{Data: len(data), Function: block.Function(function)}, data)
		n, a, err := s.Read(b, now)
		if err != nil {
			if !errors.Is(err, ErrStranger) {
				t.Fatal(err)
			}
			return
		}
		again, err := a.newClient()
		if a.Reconnect {
			again, err = a.reconnect(a.proof)
		}
		if n != len(b) || err != nil || !bytes.Equal(again, data) {
			t.Errorf("%d bytes of %d, %x became %x: %v", n, len(b), data, again, err)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	_, to := bridge(f, 1, new(Replays))
	p, err := start(dice(8), to, full(), 0)
	if err != nil {
		f.Fatal(err)
	}
	own, err := newEphemeral(dice(9))
	if err != nil {
		f.Fatal(err)
	}
	point, _ := p.own.public.point()
	ee, err := own.private.ECDH(point)
	if err != nil {
		f.Fatal(err)
	}
	codec := block.NewCodec(linkSecrets(p.es, ee, to, p.own.public, own.public, false).Out)
	f.Add(byte(block.NewServer), make([]byte, nsSize))
	f.Fuzz(func(t *testing.T, function byte, data []byte) {
		if _, _, _, err := p.Finish(data); !errors.Is(err, ErrAnswer) && !errors.Is(err, ErrShort) {
			t.Fatal(err)
		}
		if len(data) > block.MaxData {
			return
		}
		b := codec.Seal(bytes.Clone(own.public[:]), block.Header{Data: len(data), Function: block.Function(function)}, data)
		n, _, _, err := p.Finish(b)
		if right := block.Function(function) == block.NewServer && len(data) == nsSize; right != (err == nil) || right && n != len(b) {
			t.Errorf("%d bytes of %d: %v", n, len(b), err)
		}
	})
}

// Its randomness is fixed, or the fuzzer would take it for a new way through the code.
func FuzzRekey(f *testing.F) {
	kem, err := mlkem.NewDecapsulationKey768(bytes.Repeat([]byte{1}, mlkem.SeedSize))
	if err != nil {
		f.Fatal(err)
	}
	private, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{2}, 32))
	if err != nil {
		f.Fatal(err)
	}
	answer := func(b []byte) ([]byte, Secrets, error) {
		return answerRekey(Secrets{}, b, private, func(e *mlkem.EncapsulationKey768) (shared, ciphertext []byte) {
			shared, ciphertext, err := mlkemtest.Encapsulate768(e, make([]byte, 32))
			if err != nil {
				panic(err)
			}
			return shared, ciphertext
		})
	}
	r, rki := startRekey(1, private, kem)
	rkr, _, err := answer(rki)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(rki)
	f.Add(rkr)
	f.Fuzz(func(t *testing.T, b []byte) {
		if next, err := r.Finish(Secrets{}, b); err == nil && next.Epoch != 1 || err != nil && !errors.Is(err, ErrRekey) {
			t.Errorf("%v", err)
		}
		if rkr, next, err := answer(b); err == nil && (len(rkr) != rkrSize || next.Epoch != 1) || err != nil && !errors.Is(err, ErrRekey) {
			t.Errorf("%v", err)
		}
	})
}
