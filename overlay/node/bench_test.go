package node

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"heddle/identity"
	"heddle/overlay/client"
	"heddle/path"
)

// BenchmarkForward is a stream down by a node, client, node and server in one process.
func BenchmarkForward(b *testing.B) {
	grantor := fresh(b)
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	n, err := New(at, nil, Options{Identity: fresh(b), Grantors: []identity.Key{grantor.Key()},
		Modes: []string{client.ModeForward}, MaxFlows: 4, Idle: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	go n.Run(b.Context())
	grant, err := client.Issue(grantor, client.Grant{Holder: grantor.Key(), From: time.Now(), Until: time.Now().Add(time.Hour), To: []string{"127.0.0.1"}, Modes: []string{client.ModeForward}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	const chunk = 128 << 10
	go func() {
		c, err := l.Accept()
		for buffer := make([]byte, chunk); err == nil; {
			_, err = c.Write(buffer)
		}
	}()
	way, err := client.Through(client.Pass{Name: "n", Key: n.Key(), Addresses: []string{n.Addr().String()}, Grant: grant}, grantor, nil)
	if err != nil {
		b.Fatal(err)
	}
	c, err := way.Dial(b.Context(), path.At(l.Addr().(*net.TCPAddr).AddrPort()))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	buffer := make([]byte, chunk)
	b.SetBytes(chunk)
	for b.Loop() {
		if _, err := io.ReadFull(c, buffer); err != nil {
			b.Fatal(err)
		}
	}
}
