// Package wgtest holds, for tests, WireGuard servers under load: they ask for a cookie in answer to every handshake message
// without one.
//
// Do not import it outside tests.
package wgtest

import (
	crand "crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"
	"golang.zx2c4.com/wireguard/device"
)

// Overload makes wireguard-go find itself under load for good. It has no switch for that.
func Overload(dev *device.Device) {
	until := reflect.ValueOf(dev).Elem().FieldByName("rate").FieldByName("underLoadUntil")
	(*atomic.Int64)(until.Addr().UnsafePointer()).Store(math.MaxInt64)
}

// Guard is the server's half of WireGuard's cookies (WireGuard paper, sections 5.4.4 and 5.4.7), written independently of
// wireguard-go. Each source has its own cookie.
type Guard struct {
	mac1, cookies [32]byte
	secret        [32]byte
}

// NewGuard makes the guard of the server with this public key.
func NewGuard(public []byte) *Guard {
	g := &Guard{mac1: blake2s.Sum256(append([]byte("mac1----"), public...)), cookies: blake2s.Sum256(append([]byte("cookie--"), public...))}
	crand.Read(g.secret[:])
	return g
}

// Initiation makes a handshake initiation as anybody can who knows the server's public key: its first MAC holds, and nothing else.
func (g *Guard) Initiation() []byte {
	const length, macs = 148, 32
	message := make([]byte, length-macs, length)
	crand.Read(message)
	binary.LittleEndian.PutUint32(message, 1)
	return append(append(message, keyed(g.mac1[:], message)...), make([]byte, macs/2)...)
}

// Valid reports whether both MACs of a handshake message from a source hold.
func (g *Guard) Valid(message []byte, source string) bool {
	end := len(message) - 16
	return g.first(message) && subtle.ConstantTimeCompare(keyed(g.cookie(source), message[:end]), message[end:]) == 1
}

// Reply makes the cookie reply to a handshake message from a source, or nil if its first MAC is wrong.
func (g *Guard) Reply(message []byte, source string) []byte {
	if !g.first(message) {
		return nil
	}
	reply := append([]byte{3, 0, 0, 0}, message[4:8]...)
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	crand.Read(nonce)
	aead, err := chacha20poly1305.NewX(g.cookies[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	return aead.Seal(append(reply, nonce...), nonce, g.cookie(source), message[len(message)-32:len(message)-16])
}

func (g *Guard) first(message []byte) bool {
	end := len(message) - 32
	return end > 0 && subtle.ConstantTimeCompare(keyed(g.mac1[:], message[:end]), message[end:end+16]) == 1
}

func (g *Guard) cookie(source string) []byte { return keyed(g.secret[:], []byte(source)) }

func keyed(key, message []byte) []byte {
	h, err := blake2s.New128(key)
	if err != nil {
		panic(err) // the keys are short enough
	}
	h.Write(message)
	return h.Sum(nil)
}

// buffer is that of a socket, in bytes. With the kernel's default, a burst lost a hundred packets, and then TCP stalled for up to 20 s.
const buffer = 4 << 20

// Front stands before a WireGuard server on loopback, and lets handshake messages through only with a cookie for the address
// and port that they come from. It gives its own address.
func (g *Guard) Front(t testing.TB, server netip.AddrPort) netip.AddrPort {
	t.Helper()
	outside, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = outside.SetReadBuffer(buffer)
	var work sync.WaitGroup
	inside := map[netip.AddrPort]*net.UDPConn{}
	t.Cleanup(func() {
		outside.Close()
		work.Wait()
	})
	work.Go(func() {
		var back sync.WaitGroup
		defer back.Wait()
		buf := make([]byte, 1<<16)
		for {
			n, from, err := outside.ReadFromUDPAddrPort(buf)
			if err != nil {
				break
			}
			message := buf[:n]
			if kind := binary.LittleEndian.Uint32(message); (kind == 1 || kind == 2) && !g.Valid(message, from.String()) {
				outside.WriteToUDPAddrPort(g.Reply(message, from.String()), from)
				continue
			}
			c := inside[from]
			if c == nil {
				if c, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(server)); err != nil {
					break
				}
				_ = c.SetReadBuffer(buffer)
				inside[from] = c
				back.Go(func() { pass(c, outside, from) })
			}
			c.Write(message)
		}
		for _, c := range inside {
			c.Close()
		}
	})
	return outside.LocalAddr().(*net.UDPAddr).AddrPort()
}

// pass carries what the server answers back to a client.
func pass(from, by *net.UDPConn, to netip.AddrPort) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		by.WriteToUDPAddrPort(buf[:n], to)
	}
}
