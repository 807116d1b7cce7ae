package peer

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/internal/polltest"
	"heddle/lab"
)

func TestMain(m *testing.M) {
	lab.MaybeEnter()
	os.Exit(m.Run())
}

func needWorld(t *testing.T, w lab.World) *lab.Instance {
	t.Helper()
	if err := lab.Supported(); errors.Is(err, lab.ErrUnsupported) {
		t.Skip(err)
	}
	in, err := lab.Up(t.Context(), w, lab.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Down(); err != nil {
			t.Error(err)
		}
	})
	return in
}

// need fails the test on an error, or skips it where only the program is missing.
func need(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestWireGuardCarriesPagesAndThroughput(t *testing.T) {
	in := needWorld(t, lab.ThreeWaysUnlimited())
	server, client := in.Host("server"), in.Host("client")
	file := filepath.Join(t.TempDir(), "office.conf")
	endpoint := netip.AddrPortFrom(lab.ServerAddr, 51820)
	wg, err := WireGuardServer(t.Context(), server, WireGuardConfig{Endpoint: endpoint, File: file,
		Allowed: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("198.51.100.0/24")}})
	need(t, err)
	checkFile(t, file, wg)
	if _, err := wg.Client(t.Context(), client, endpoint); err != nil {
		t.Fatal(err)
	}

	root := filepath.Join(t.TempDir(), "site")
	pages, err := Site(root, 1<<20)
	if err != nil || pages[0] != "index.html" {
		t.Fatal(pages, err)
	}
	web, err := WebServer(t.Context(), in.Host("web"), root, t.TempDir(), "web.example")
	need(t, err)
	for _, page := range append(pages[:min(len(pages), 3)], "large.bin") {
		want, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, url := range []string{"http://web.example/" + page, "https://web.example/" + page} {
			got, err := client.Command(t.Context(), "curl", "-4sS", "--max-time", "60", "--cacert", web.Certificate, url).CombinedOutput()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s by %s: %v, %d bytes of %d", url, web.Server, err, len(got), len(want))
			}
		}
	}

	at := netip.MustParseAddrPort("10.9.0.1:5201")
	iperf, err := IperfServer(t.Context(), server, at)
	need(t, err)
	first := make(chan error, 1)
	go func() {
		_, err := Iperf(t.Context(), client, IperfTest{To: at, For: 2 * time.Second})
		first <- err
	}()
	need(t, iperf.AwaitLog(t.Context(), "Accepted connection"))
	if _, err := Iperf(t.Context(), client, IperfTest{To: at, For: time.Second}); err != nil {
		t.Errorf("beside another test: %v", err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	for _, down := range []bool{false, true} {
		polltest.Again(t, func(try int) error { // a second is short on a busy machine
			got, err := Iperf(t.Context(), client, IperfTest{To: at, Down: down, For: time.Second << try})
			if err == nil && got.Bytes < 1<<20 {
				err = fmt.Errorf("down %v: %+v", down, got)
			}
			return err
		})
	}
}

func checkFile(t *testing.T, file string, wg *WireGuard) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the keys has mode %v, %v", info.Mode(), err)
	}
	for _, want := range []string{"PrivateKey = ", "PresharedKey = ", "PublicKey = " + base64.StdEncoding.EncodeToString(wg.public.Bytes()), "Endpoint = 192.0.2.1:51820", "AllowedIPs = 10.9.0.0/24, 198.51.100.0/24"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the file lacks %q", want)
		}
	}
	for _, form := range []string{"%v", "%+v", "%#v", "%s"} {
		text := fmt.Sprintf(form, wg)
		for _, secret := range [][]byte{wg.client, wg.shared} {
			if strings.Contains(text, fmt.Sprintf("%x", secret)) || strings.Contains(text, fmt.Sprint(secret)) {
				t.Errorf("%s shows a key", form)
			}
		}
	}
}

func TestWebServerWithoutNginx(t *testing.T) {
	in := needWorld(t, lab.Pair())
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "page.html"), []byte("a page"), 0o644); err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	certificate, key := filepath.Join(work, "certificate.pem"), filepath.Join(work, "key.pem")
	if err := SelfSigned(certificate, key, []string{"b.example"}, in.Host("b").Addrs()); err != nil {
		t.Fatal(err)
	}
	if err := serveHTTP(t.Context(), in.Host("b"), root, certificate, key); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"http://b.example/page.html", "https://b.example/page.html", "https://10.0.0.2/page.html"} {
		out, err := in.Host("a").Command(t.Context(), "curl", "-sS", "--max-time", "60", "--cacert", certificate, url).CombinedOutput()
		if err != nil || string(out) != "a page" {
			t.Errorf("%s: %v: %s", url, err, out)
		}
	}
}

func TestProcesses(t *testing.T) {
	in := needWorld(t, lab.Pair())
	if _, err := Start(t.Context(), in.Host("a"), "no-such-program"); !errors.Is(err, ErrMissing) {
		t.Errorf("a missing program: %v", err)
	}
	p, err := Start(t.Context(), in.Host("a"), "sh", "-c", "echo some words; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.OrStop(p.Await(t.Context(), func() error { return errors.New("not yet") }))
	if err == nil || !strings.Contains(err.Error(), "some words") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a program that ends at once: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p, err = Start(ctx, in.Host("a"), "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Await(ctx, func() error {
		if p.Log() != "ready" {
			return errors.New("the trap is not set")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-p.Done()
}

func TestParseIperf(t *testing.T) {
	good := `{"end":{"sum_sent":{"retransmits":3},"sum_received":{"bytes":1000,"bits_per_second":8000.5}}}`
	if got, err := parseIperf([]byte(good), nil); err != nil || got != (IperfResult{8000.5, 1000, 3}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, c := range []struct {
		out  string
		err  error
		want string
		busy bool
	}{
		{`{"error":"unable to connect"}`, errors.New("exit status 1"), "unable to connect", false},
		{`{"error":"the server is busy running a test. try again later"}`, errors.New("exit status 1"), "busy", true},
		{`{"error":"unable to receive control message: Connection reset by peer"}`, errors.New("exit status 1"), "reset", true},
		{`{"error":"odd"}`, nil, "odd", false},
		{`{"end":{}}`, nil, "nothing was received", false},
		{`no json`, errors.New("exit status 2"), "exit status 2", false},
	} {
		if _, err := parseIperf([]byte(c.out), c.err); err == nil || !strings.Contains(err.Error(), c.want) || busy(err) != c.busy {
			t.Errorf("%s: %v", c.out, err)
		}
	}
}
