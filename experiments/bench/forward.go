package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"heddle/identity"
	"heddle/internal/tlsbatch"
	"heddle/lab"
	"heddle/lab/peer"
)

// Addresses of forwarders, the alternatives to Heddle.
var (
	forwardLocal = netip.AddrPortFrom(lab.NodeAddr(0), 9002) // on the first node, without TLS
	hopLocal     = netip.MustParseAddrPort("127.0.0.1:9003") // at the client, the first of three with TLS between them
	hopNode      = netip.AddrPortFrom(lab.NodeAddr(0), 9003)
	hopServer    = netip.AddrPortFrom(lab.ServerAddr, 9003)
	sshLocal     = netip.MustParseAddrPort("127.0.0.1:9004") // at the client, a port that ssh forwards
)

// forwarder is a user-space program that connects each client to another address and copies piece bytes at a time. in
// and out are the TLS of each side, or nil.
type forwarder struct {
	host    *lab.Host
	at, to  netip.AddrPort
	in, out *tls.Config
	piece   int
}

// smallPieces are common copy sizes: socat's default is 8 KiB, HAProxy's and nginx's 16 KiB.
var smallPieces = []struct {
	name string
	at   netip.AddrPort
	size int
}{
	{"forwarder-8K", netip.AddrPortFrom(lab.NodeAddr(0), 9005), 8 << 10},
	{"forwarder-16K", netip.AddrPortFrom(lab.NodeAddr(0), 9006), 16 << 10},
}

// forwardPlain starts the forwarders without TLS on the first node.
func forwardPlain(ctx context.Context, s *stage) error {
	f := forwarder{host: s.Host("one"), at: forwardLocal, to: sinkOpen, piece: sinkBuffer}
	err := f.serve(ctx)
	for _, p := range smallPieces {
		f.at, f.piece = p.at, p.size
		err = errors.Join(err, f.serve(ctx))
	}
	return err
}

// serve forwards until ctx ends.
func (f forwarder) serve(ctx context.Context) error {
	return servePlain(ctx, f.host, f.at, func(near net.Conn) { f.carry(ctx, near) })
}

func (f forwarder) carry(ctx context.Context, near net.Conn) {
	far, err := dialFrom(ctx, f.host, "", f.to)
	if err != nil {
		near.Close()
		return
	}
	// The same TLS as a stream's, so that it causes no difference.
	if f.in != nil {
		near = tlsbatch.Server(near, f.in)
	}
	if f.out != nil {
		far = tlsbatch.Client(far, f.out)
	}
	go f.copy(near, far)
	go f.copy(far, near)
}

func (f forwarder) copy(to, from net.Conn) {
	defer to.Close()
	// Hide the methods of TCP connections, or the kernel would do the copying.
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, f.piece))
}

// forwardTLS forwards from the client by the first node to the server, with mutual TLS 1.3 on both hops. It costs what
// a stream over one node costs without end-to-end TLS, with as many encryptions, in one process.
func forwardTLS(ctx context.Context, s *stage) error {
	id, err := identity.New()
	if err != nil {
		return err
	}
	out, err := id.Client(id.Key(), "forward")
	if err != nil {
		return err
	}
	in, err := id.Server(func(identity.Key) error { return nil }, "forward")
	if err != nil {
		return err
	}
	in.DynamicRecordSizingDisabled, out.DynamicRecordSizingDisabled = true, true
	return errors.Join(
		forwarder{s.Host("server"), hopServer, sinkOpen, in, nil, sinkBuffer}.serve(ctx),
		forwarder{s.Host("one"), hopNode, hopServer, in, out, sinkBuffer}.serve(ctx),
		forwarder{s.Host("client"), hopLocal, hopNode, nil, out, sinkBuffer}.serve(ctx))
}

// haveSSH reports whether OpenSSH is installed.
func haveSSH() bool {
	for _, program := range []string{"ssh", "ssh-keygen", "/usr/sbin/sshd"} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	return true
}

// forwardSSH forwards a port of the client by the first node to the server with the unmodified OpenSSH (ssh -L).
func forwardSSH(ctx context.Context, s *stage) error {
	work := filepath.Join(s.work, "ssh")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	server, err := peer.SSHServer(ctx, s.Host("one"), work)
	if err != nil {
		return err
	}
	client, err := peer.Start(ctx, s.Host("client"), "ssh", "-v", "-F", server.Config, "-N", "-o", "ExitOnForwardFailure=yes",
		"-L", sshLocal.String()+":"+sinkOpen.String(), lab.NodeAddr(0).String())
	if err != nil {
		return err
	}
	if err := client.AwaitLog(ctx, "Local forwarding listening on"); err != nil {
		return errors.Join(err, logs(client, server.Process))
	}
	return nil
}
