package split

import (
	"bytes"
	"crypto/hmac"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/flynn/noise"
	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/curve25519"
)

// WireGuard's handshake messages (WireGuard paper, sections 5.4.2, 5.4.3 and 5.4.7): lengths in bytes, and types.
const (
	initiationType   = 1
	initiationLength = 148
	responseType     = 2
	responseLength   = 92
	cookieType       = 3
	cookieLength     = 64
	macLength        = 16
	noiseConstruct   = "WireGuard v1 zx2c4 Jason@zx2c4.com"
	labelMAC1        = "mac1----"
)

// Keys are the keys of one WireGuard peer, which must never appear in logs. Preshared is zero if there is none.
type Keys struct {
	Private    [32]byte
	PeerPublic [32]byte
	Preshared  [32]byte
}

// String hides the keys.
func (Keys) String() string { return "(keys)" }

func (Keys) GoString() string { return "(keys)" }

func (Keys) LogValue() slog.Value { return slog.StringValue("(keys)") }

// questioner sends handshake initiations of its own: every server answers one at once, and nobody else can. The key pair is
// never used. The timestamps precede those of the session's handshakes of the same moment, and so never displace them.
type questioner struct {
	static  noise.DHKey
	server  []byte
	psk     []byte
	mac1    [32]byte
	cookies [32]byte // key of the server's cookie replies

	mu     sync.Mutex
	last   time.Time // tick of the last timestamp
	serial uint32    // questions within that tick
	asked  map[uint32]*noise.HandshakeState
	order  []uint32
}

const questionsKept = 16

func newQuestioner(k Keys) (*questioner, error) {
	public, err := curve25519.X25519(k.Private[:], curve25519.Basepoint)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	q := &questioner{static: noise.DHKey{Private: k.Private[:], Public: public}, server: k.PeerPublic[:], psk: k.Preshared[:],
		asked: map[uint32]*noise.HandshakeState{}}
	q.mac1, q.cookies = labelKey(labelMAC1, k.PeerPublic[:]), labelKey(labelCookie, k.PeerPublic[:])
	return q, nil
}

// labelKey is the key for one use of messages to, or cookies from, the owner of a public key.
func labelKey(label string, public []byte) [32]byte {
	return blake2s.Sum256(append([]byte(label), public...))
}

func mac(key, message []byte) []byte {
	h, _ := blake2s.New128(key) // fails only for keys of more than 32 bytes
	h.Write(message)
	return h.Sum(nil)
}

// question makes a handshake initiation, and the id that its answer carries.
func (q *questioner) question(now time.Time) ([]byte, uint32, error) {
	h, err := noise.NewHandshakeState(noise.Config{
		CipherSuite: noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashBLAKE2s),
		Random:      crand.Reader, Pattern: noise.HandshakeIK, Initiator: true, Prologue: []byte(noiseConstruct),
		PresharedKey: q.psk, PresharedKeyPlacement: 2, StaticKeypair: q.static, PeerStatic: q.server})
	if err != nil {
		return nil, 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var b [4]byte
	crand.Read(b[:])
	id := binary.LittleEndian.Uint32(b[:])
	message := binary.LittleEndian.AppendUint32(make([]byte, 0, initiationLength), initiationType)
	message = binary.LittleEndian.AppendUint32(message, id)
	if message, _, _, err = h.WriteMessage(message, q.timestamp(now)); err != nil {
		return nil, 0, err
	}
	message = append(message, mac(q.mac1[:], message)...)
	message = append(message, make([]byte, macLength)...) // for the member's cookie
	q.remember(id, h)
	return message, id, nil
}

func (q *questioner) remember(id uint32, h *noise.HandshakeState) {
	q.asked[id] = h
	q.order = append(q.order, id)
	if len(q.order) > questionsKept {
		delete(q.asked, q.order[0])
		q.order = q.order[1:]
	}
}

// wireguard-go and the kernel round their timestamps down to this tick, to hide the exact time.
const timestampTick = 1 << 24 * time.Nanosecond

// timestamp returns a TAI64N label in the previous tick: later than all that the session sent before, and earlier than all
// that it sends from now on. q.mu is held.
func (q *questioner) timestamp(now time.Time) []byte {
	tick := whiten(now)
	q.serial++
	if tick.After(q.last) {
		q.last, q.serial = tick, 1
	}
	return tai64n(whiten(q.last.Add(-1)).Add(time.Duration(q.serial)))
}

// tai64n is the 12-byte label of a time, with the constant 10 s that WireGuard's implementations use.
func tai64n(t time.Time) []byte {
	out := binary.BigEndian.AppendUint64(make([]byte, 0, 12), 0x400000000000000a+uint64(t.Unix()))
	return binary.BigEndian.AppendUint32(out, uint32(t.Nanosecond()))
}

// whiten rounds down to the tick within the second.
func whiten(t time.Time) time.Time {
	return time.Unix(t.Unix(), int64(t.Nanosecond())&^int64(timestampTick-1))
}

// answered returns the question that a datagram answers. Only the server can make a valid answer.
func (q *questioner) answered(datagram []byte) (uint32, bool) {
	if !isResponse(datagram) {
		return 0, false
	}
	id := binary.LittleEndian.Uint32(datagram[8:])
	q.mu.Lock()
	defer q.mu.Unlock()
	h, ok := q.asked[id]
	if !ok {
		return 0, false
	}
	// A forged answer would spoil the state that the true one needs. MAC1 needs the client's public key.
	body := responseLength - 2*macLength
	key := labelKey(labelMAC1, q.static.Public)
	if !hmac.Equal(mac(key[:], datagram[:body]), datagram[body:body+macLength]) {
		return 0, false
	}
	if _, _, _, err := h.ReadMessage(nil, datagram[12:body]); err != nil {
		return 0, false
	}
	delete(q.asked, id)
	return id, true
}

// cookie opens a cookie reply to a handshake message. Only those who saw the message can make one that opens.
func (q *questioner) cookie(reply, message []byte) ([]byte, bool) {
	const header, nonce = 8, chacha20poly1305.NonceSizeX
	if !isCookieReply(reply) || !bytes.Equal(reply[4:header], message[4:header]) {
		return nil, false
	}
	aead, err := chacha20poly1305.NewX(q.cookies[:])
	if err != nil {
		return nil, false
	}
	mac1 := message[len(message)-2*macLength : len(message)-macLength]
	cookie, err := aead.Open(nil, reply[header:header+nonce], reply[header+nonce:], mac1)
	return cookie, err == nil
}

// isQuestion reports whether a datagram is a handshake initiation of the session itself.
func (q *questioner) isQuestion(datagram []byte) bool { return isInitiation(datagram) }

func isResponse(datagram []byte) bool {
	return len(datagram) == responseLength && binary.LittleEndian.Uint32(datagram) == responseType
}
