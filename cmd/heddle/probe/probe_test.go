package probe

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/split"
	"heddle/lab/peer"
	"heddle/split/quicprobe"
)

// heddle has the commands that these tests need.
var heddle = clitest.Program{Command}

// quicServer is an HTTP/3 server on loopback, and the file of its certificate.
func quicServer(t *testing.T, name string) (netip.AddrPort, string) {
	t.Helper()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	if err := peer.SelfSigned(certificate, key, []string{name}, nil); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	server := &http3.Server{Handler: http.NotFoundHandler(), TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}})}
	done := make(chan struct{})
	go func() {
		server.Serve(socket)
		close(done)
	}()
	t.Cleanup(func() {
		server.Close()
		socket.Close()
		<-done
	})
	return socket.LocalAddr().(*net.UDPAddr).AddrPort(), certificate
}

func TestProbeAnswersInTextAndJSON(t *testing.T) {
	at, certificate := quicServer(t, "server.example")
	// So many bytes are enough for a handshake, and too few for all.
	args := []string{"probe", "quic", at.String(), "--sni", "server.example", "--ca", certificate, "--max-bytes", "30000", "--via", "a=src:127.0.0.2", "--via", "b=src:127.0.0.3"}
	var out, talk bytes.Buffer
	if code := heddle.Run(t.Context(), args, strings.NewReader(""), &out, &talk); code != cli.ExitOK {
		t.Fatalf("exit code %d\n%s", code, &talk)
	}
	if text := out.String(); !strings.HasPrefix(text, at.String()) || !strings.Contains(text, "v1, h3") || !strings.Contains(text, "Not finished: ") {
		t.Errorf("the answer is\n%s", text)
	}
	if !strings.Contains(talk.String(), "a new port") {
		t.Errorf("progress is\n%s", &talk)
	}
	out.Reset()
	if code := heddle.Run(t.Context(), append(args, "--json"), strings.NewReader(""), &out, &talk); code != cli.ExitOK {
		t.Fatalf("exit code %d\n%s", code, &talk)
	}
	var report quicprobe.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || report.ALPN != "h3" || report.Stopped == "" || len(report.Paths) != 2 {
		t.Errorf("%v: report %+v", err, report)
	}
}

// What is advised must be flags that heddle split has.
func TestAdviceParses(t *testing.T) {
	a := quicprobe.Advice{Split: true, Flags: []string{"--schedule", "weighted", "--every", "100ms"}, Settle: 350_000_000}
	settle(&a)
	if err := split.Command().ParseFlags(a.Flags); err != nil || a.Flags[len(a.Flags)-1] != "350ms" {
		t.Errorf("%q: %v", a.Flags, err)
	}
}
