package handshake

import (
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/sha256"
	"errors"
)

const (
	rkiSize = 1 + 32 + mlkem.EncapsulationKeySize768
	rkrSize = 1 + 32 + mlkem.CiphertextSize768
)

// ErrRekey says that a message is no rki or rkr of the next epoch.
var ErrRekey = errors.New("the message about new keys is not what it should be")

// Rekey is a rekey that has no answer yet. It uses X25519 and ML-KEM-768: who breaks only one of them learns nothing.
type Rekey struct {
	private *ecdh.PrivateKey
	kem     *mlkem.DecapsulationKey768
	rki     []byte
}

// StartRekey begins an epoch, and returns the data of the rki block.
func StartRekey(epoch byte) (*Rekey, []byte) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	kem, err := mlkem.GenerateKey768()
	if err != nil {
		panic(err)
	}
	return startRekey(epoch, private, kem)
}

func startRekey(epoch byte, private *ecdh.PrivateKey, kem *mlkem.DecapsulationKey768) (*Rekey, []byte) {
	rki := append([]byte{epoch}, private.PublicKey().Bytes()...)
	rki = append(rki, kem.EncapsulationKey().Bytes()...)
	return &Rekey{private, kem, rki}, rki
}

// Finish reads the data of the rkr block. s are the secrets of the epoch before.
func (r *Rekey) Finish(s Secrets, rkr []byte) (Secrets, error) {
	if len(rkr) != rkrSize || rkr[0] != r.rki[0] || rkr[0] != s.Epoch+1 {
		return Secrets{}, ErrRekey
	}
	shared, err := agree(r.private, rkr)
	if err != nil {
		return Secrets{}, err
	}
	kem, err := r.kem.Decapsulate(rkr[33:])
	if err != nil {
		return Secrets{}, ErrRekey
	}
	return s.next(shared, kem, r.rki, rkr), nil
}

// AnswerRekey reads the data of an rki block, and returns the data of the rkr block and the secrets of the new epoch. s are the
// secrets of the epoch before. A repeated rki must get the same answer again, so the caller keeps it.
func AnswerRekey(s Secrets, rki []byte) (rkr []byte, next Secrets, err error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, Secrets{}, err
	}
	return answerRekey(s, rki, private, (*mlkem.EncapsulationKey768).Encapsulate)
}

func answerRekey(s Secrets, rki []byte, private *ecdh.PrivateKey,
	encapsulate func(*mlkem.EncapsulationKey768) (shared, ciphertext []byte),
) (rkr []byte, next Secrets, err error) {
	if len(rki) != rkiSize || rki[0] != s.Epoch+1 {
		return nil, Secrets{}, ErrRekey
	}
	shared, err := agree(private, rki)
	if err != nil {
		return nil, Secrets{}, err
	}
	key, err := mlkem.NewEncapsulationKey768(rki[33:])
	if err != nil {
		return nil, Secrets{}, ErrRekey
	}
	kem, ciphertext := encapsulate(key)
	rkr = append([]byte{rki[0]}, private.PublicKey().Bytes()...)
	rkr = append(rkr, ciphertext...)
	return rkr, s.next(shared, kem, rki, rkr), nil
}

// agree is X25519 with the key in an rki or rkr.
func agree(private *ecdh.PrivateKey, message []byte) ([]byte, error) {
	theirs, err := ecdh.X25519().NewPublicKey(message[1:33])
	if err != nil {
		return nil, ErrRekey
	}
	shared, err := private.ECDH(theirs)
	if err != nil {
		return nil, ErrRekey // a point of low order
	}
	return shared, nil
}

// next gives the secrets of the epoch after s. The join key stays.
func (s Secrets) next(shared, kem, rki, rkr []byte) Secrets {
	transcript := sha256.New()
	transcript.Write(rki)
	transcript.Write(rkr)
	secret := append(append(make([]byte, 0, 64), shared...), kem...)
	n := secretsOf(derive(secret, s.chain[:], labelRekey+string(transcript.Sum(nil)), materialSize), s.client)
	n.join, n.Epoch = s.join, s.Epoch+1
	return n
}
