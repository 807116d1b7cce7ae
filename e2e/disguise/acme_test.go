package disguise

import (
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"heddle/internal/polltest"
	"heddle/lab"
	"heddle/lab/labtest"
	"heddle/lab/peer"
)

// trusting starts a heddle command on a host whose system trusts the certificates in a file alone, and waits until it prints word.
func (w *bridgeWorld) trusting(host, file, word string, args ...string) *peer.Process {
	w.t.Helper()
	p, err := peer.Start(w.t.Context(), w.Host(host), "env", append([]string{"HEDDLE_HOME=" + w.Home(host), "SSL_CERT_FILE=" + file, labtest.Heddle}, args...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Stop)
	if err := p.AwaitLog(w.t.Context(), word); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// authority starts one beside the website. It looks for answers to challenges at a port of the bridge.
func (w *bridgeWorld) authority(ports [2]uint16, challenges uint16, valid time.Duration) *peer.ACME {
	w.t.Helper()
	a, err := peer.StartACME(w.t.Context(), w.Host("web"), w.t.TempDir(), peer.ACMEOptions{Addr: lab.WebAddr, Ports: ports, Nameserver: nameserverAt, Challenges: challenges, Valid: valid})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(a.Stop)
	return a
}

var nameserverAt = netip.AddrPortFrom(lab.WebAddr, 53)

// nameserver says by TCP, which the authority uses, that the site's name leads to the bridge.
func (w *bridgeWorld) nameserver() {
	w.t.Helper()
	var l net.Listener
	err := w.Host("web").Do(func() (err error) {
		l, err = net.Listen("tcp", nameserverAt.String())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	s := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(out dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if at := q.Question[0]; at.Qtype == dns.TypeA && strings.EqualFold(at.Name, "www.example.") {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: at.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: lab.ServerAddr.AsSlice()})
		}
		_ = out.WriteMsg(m)
	})}
	go s.ActivateAndServe()
	w.t.Cleanup(func() { s.Shutdown() })
}

// greeted is how the bridge answers a hello of the client.
func (w *bridgeWorld) greeted(at netip.AddrPort, protocols ...string) (state tls.ConnectionState, err error) {
	w.t.Helper()
	err = w.Host("client").Do(func() error {
		c, err := tls.Dial("tcp", at.String(), &tls.Config{ServerName: "www.example", InsecureSkipVerify: true, NextProtos: protocols})
		if err == nil {
			state = c.ConnectionState()
			c.Close()
		}
		return err
	})
	return state, err
}

// A bridge gets its certificate from an unmodified ACME authority, as soon as it listens, and clients trust that. It answers a stranger who offers
// the protocol of challenges as a server without ACME does. It renews the certificate, and says so if it gets none.
func TestCertificateOfAnACMEAuthority(t *testing.T) {
	w := newKeyedWorld(t)
	w.nameserver()
	authority := w.authority([2]uint16{14000, 15000}, bridgeAt.Port(), 90*24*time.Hour)
	dir, cover := filepath.Join(t.TempDir(), "acme"), "https:site="+recordedSite(t)
	acme := func(dir, url string) []string {
		return append([]string{"--cover", cover, "--acme", dir, "--acme-authority", url}, toWeb...)
	}
	const has = "has a certificate of the authority"
	bridge := w.trusting("server", authority.Trusted, has, w.serving(bridgeAt, acme(dir, authority.URL)...)...)
	if found, err := w.greeted(bridgeAt, "h2", "http/1.1"); err != nil || len(found.PeerCertificates) != 2 || !strings.Contains(found.PeerCertificates[0].Issuer.CommonName, "Pebble") {
		t.Errorf("%v, %d certificates", err, len(found.PeerCertificates))
	}
	if _, err := w.greeted(bridgeAt, "acme-tls/1"); err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("a stranger who asks for a challenge: %v", err)
	}
	dial := w.trusting("client", authority.Root, "disguise is up", "disguise", "dial", w.client, "--listen", proxyAt, "--via", "home=if:home", "--cover", cover)
	if err := w.fetch(); err != nil {
		t.Errorf("%v\n%s\n%s", err, dial.Log(), bridge.Log())
	}
	for _, name := range []string{"www.example", "acme_account+key"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}

	// A bridge that starts again asks nobody. Without a certificate it says why, and visitors get none.
	bridge.Stop()
	authority.Stop()
	bridge = w.trusting("server", authority.Trusted, has, w.serving(bridgeAt, acme(dir, authority.URL)...)...)
	if _, err := w.greeted(bridgeAt, "h2"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	bridge.Stop()
	bridge = w.trusting("server", authority.Trusted, "gave the website no certificate", w.serving(bridgeAt, acme(filepath.Join(t.TempDir(), "acme"), authority.URL)...)...)
	if _, err := w.greeted(bridgeAt, "h2"); err == nil {
		t.Error("a certificate from nowhere")
	}
	bridge.Stop()

	short := w.authority([2]uint16{14001, 15001}, bridgeAt.Port(), 6*time.Second)
	w.trusting("server", short.Trusted, has, w.serving(bridgeAt, acme(filepath.Join(t.TempDir(), "acme"), short.URL)...)...)
	first, err := w.greeted(bridgeAt, "h2")
	if err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "the bridge renews its certificate", func() bool {
		next, err := w.greeted(bridgeAt, "h2")
		return err == nil && next.PeerCertificates[0].SerialNumber.Cmp(first.PeerCertificates[0].SerialNumber) != 0
	})
}
