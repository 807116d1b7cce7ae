package split

import (
	"bytes"
	crand "crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/curve25519"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"

	"heddle/internal/polltest"
	"heddle/path"
	"heddle/schedule"
)

// wireguard is an unmodified wireguard-go server on loopback with a network of its own behind it.
type wireguard struct {
	address netip.AddrPort
	net     *netstack.Net
	device  *device.Device
	client  Keys
}

var serverInside, clientInside = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")

func keyPair(t *testing.T) (private, public [32]byte) {
	t.Helper()
	crand.Read(private[:])
	p, err := curve25519.X25519(private[:], curve25519.Basepoint)
	if err != nil {
		t.Fatal(err)
	}
	return private, [32]byte(p)
}

func startWireguard(t *testing.T, psk bool) *wireguard {
	t.Helper()
	serverPrivate, serverPublic := keyPair(t)
	clientPrivate, clientPublic := keyPair(t)
	w := &wireguard{client: Keys{Private: clientPrivate, PeerPublic: serverPublic}}
	if psk {
		crand.Read(w.client.Preshared[:])
	}
	tun, inside, err := netstack.CreateNetTUN([]netip.Addr{serverInside}, nil, 1420)
	if err != nil {
		t.Fatal(err)
	}
	w.net = inside
	dev := device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(dev.Close)
	w.device = dev
	err = dev.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=0\npublic_key=%s\npreshared_key=%s\nallowed_ip=%s/32\n",
		hex.EncodeToString(serverPrivate[:]), hex.EncodeToString(clientPublic[:]), hex.EncodeToString(w.client.Preshared[:]), clientInside))
	if err == nil {
		err = dev.Up()
	}
	if err != nil {
		t.Fatal(err)
	}
	state, err := dev.IpcGet()
	if err != nil {
		t.Fatal(err)
	}
	var port uint16
	for line := range strings.Lines(state) {
		fmt.Sscanf(line, "listen_port=%d", &port)
	}
	w.address = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	return w
}

// connect makes the client's device over a bind of ours.
func (w *wireguard) connect(t *testing.T, b *Bind) *netstack.Net {
	t.Helper()
	inside, _ := w.connectDevice(t, b)
	return inside
}

func (w *wireguard) connectDevice(t *testing.T, b *Bind) (*netstack.Net, *device.Device) {
	t.Helper()
	tun, inside, err := netstack.CreateNetTUN([]netip.Addr{clientInside}, nil, 1420)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewDevice(b.Bound(tun), b, device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(dev.Close)
	err = dev.IpcSet(fmt.Sprintf("private_key=%s\npublic_key=%s\npreshared_key=%s\nendpoint=%s\nallowed_ip=0.0.0.0/0\n",
		hex.EncodeToString(w.client.Private[:]), hex.EncodeToString(w.client.PeerPublic[:]), hex.EncodeToString(w.client.Preshared[:]), w.address))
	if err == nil {
		err = dev.Up()
	}
	if err != nil {
		t.Fatal(err)
	}
	peer := dev.LookupPeer(w.client.PeerPublic)
	b.Attach(peer.SendKeepalive)
	return inside, dev
}

// connectPlain makes a client's device without Heddle's bind, as a WireGuard program has it.
func (w *wireguard) connectPlain(t *testing.T, server netip.AddrPort) *netstack.Net {
	t.Helper()
	tun, inside, err := netstack.CreateNetTUN([]netip.Addr{clientInside}, nil, 1420)
	if err != nil {
		t.Fatal(err)
	}
	dev := device.NewDevice(tun, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(dev.Close)
	err = dev.IpcSet(fmt.Sprintf("private_key=%s\npublic_key=%s\npreshared_key=%s\nendpoint=%s\nallowed_ip=0.0.0.0/0\n",
		hex.EncodeToString(w.client.Private[:]), hex.EncodeToString(w.client.PeerPublic[:]), hex.EncodeToString(w.client.Preshared[:]), server))
	if err == nil {
		err = dev.Up()
	}
	if err != nil {
		t.Fatal(err)
	}
	return inside
}

func loopbackPaths(n int) []path.Spec {
	var via []path.Spec
	for i := range n {
		via = append(via, path.Spec{Name: string(rune('a' + i)), Kind: "src", Arg: fmt.Sprintf("127.0.1.%d", i+1)})
	}
	return via
}

// download serves size bytes inside the server's network, fetches them and compares.
func (w *wireguard) download(t *testing.T, client *netstack.Net, size int) {
	t.Helper()
	content := make([]byte, size)
	crand.Read(content)
	l, err := w.net.ListenTCP(&net.TCPAddr{IP: serverInside.AsSlice(), Port: 8080})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Write(content)
		c.Close()
	}()
	c, err := client.DialContextTCPAddrPort(t.Context(), netip.AddrPortFrom(serverInside, 8080))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("fetched %d bytes of %d: %v", len(got), size, err)
	}
}

func TestWireGuardSessionIsSplitBothWays(t *testing.T) {
	polltest.Again(t, func(int) error { return splitBothWays(t) }) // a path that a busy machine made late carries little
}

// splitBothWays returns what is wrong with a session after a download.
func splitBothWays(t *testing.T) error {
	t.Helper()
	w := startWireguard(t, true)
	const seed = 21
	s := uint64(seed)
	f, err := NewSession(Options{Session: "office", To: w.address.String(), Via: loopbackPaths(3),
		Schedule: schedule.Config{Name: "uniform", Every: schedule.Every{Packets: 2}, Seed: &s}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBind(f, w.client)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prove(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	client := w.connect(t, b)
	w.download(t, client, 24<<20)
	st := b.Status()
	if st.State != "running" || st.Switches < 10 {
		return fmt.Errorf("state %s, %d switches", st.State, st.Switches)
	}
	for _, p := range st.Paths {
		if p.State != string(path.Up) && p.State != string(path.Suspect) || p.RTT == 0 || p.LastHeard == nil {
			return fmt.Errorf("path %s: %s, RTT %v", p.Name, p.State, p.RTT)
		}
		if p.Down.Share < 0.05 || p.Up.Share < 0.05 {
			return fmt.Errorf("seed %d: path %s carried %.2f down, %.2f up", seed, p.Name, p.Down.Share, p.Up.Share)
		}
		if p.Loss == nil {
			return fmt.Errorf("path %s: no loss figure", p.Name)
		}
	}
	return nil
}

func TestNothingLeavesBeforeEnoughPathsAnswer(t *testing.T) {
	w := startWireguard(t, false)
	via := loopbackPaths(1)
	via = append(via, path.Spec{Name: "absent", Kind: "if", Arg: "absent0"})
	f, err := NewSession(Options{Session: "office", To: w.address.String(), Via: via})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBind(f, w.client)
	if err != nil {
		t.Fatal(err)
	}
	client := w.connect(t, b)
	c, err := client.DialUDPAddrPort(netip.AddrPort{}, netip.AddrPortFrom(serverInside, 9))
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("nobody may see this"))
	deadline := time.Now().Add(30 * time.Second)
	st := b.Status()
	for ; st.Refused == 0 || !strings.Contains(st.Why, "1 of 2"); st = b.Status() {
		if time.Now().After(deadline) {
			t.Fatalf("refused %d, why %q", st.Refused, st.Why)
		}
		time.Sleep(10 * time.Millisecond)
	}
	// What did leave are questions to the server: handshakes that carry nothing of the session.
	if st.State != "starting" || st.Paths[0].Up.Bytes > initiationLength*st.Paths[0].Up.Packets {
		t.Errorf("state %s, sent %+v", st.State, st.Paths[0].Up)
	}
	if !strings.Contains(st.Why, "absent") {
		t.Errorf("why: %q", st.Why)
	}
}

func TestOnlyTheServerCanAnswer(t *testing.T) {
	w := startWireguard(t, false)
	q, err := newQuestioner(w.client)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := path.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	into := make([]path.Inbound, 1)
	var before []byte
	for range 3 { // each with a later timestamp than the last, else the server would keep silent
		datagram, id, err := q.question(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if len(datagram) != initiationLength || !q.isQuestion(datagram) {
			t.Fatalf("an initiation of %d bytes", len(datagram))
		}
		if bytes.Equal(datagram, before) {
			t.Fatal("the same question twice")
		}
		before = datagram
		if _, err := socket.SendTo(w.address, [][]byte{datagram}); err != nil {
			t.Fatal(err)
		}
		if _, err := socket.Receive(into); err != nil {
			t.Fatal(err)
		}
		answer := bytes.Clone(into[0].Data)
		for _, at := range []int{0, 8, 20, 50, 65} {
			forged := bytes.Clone(answer)
			forged[at] ^= 1
			if _, ok := q.answered(forged); ok {
				t.Errorf("an answer with byte %d changed was accepted", at)
			}
		}
		if got, ok := q.answered(answer); !ok || got != id {
			t.Errorf("the server's answer was not accepted: %v, %v", got, ok)
		}
		if _, ok := q.answered(answer); ok {
			t.Error("an answer was accepted twice")
		}
		time.Sleep(50 * time.Millisecond) // servers take at most 50 handshakes a second
	}
}

func TestTimestampsRiseAndStayBehindTheSession(t *testing.T) {
	q := &questioner{}
	var last []byte
	for _, now := range []time.Time{time.Unix(100, 0), time.Unix(100, 0), time.Unix(100, 5), time.Unix(100, 1<<24), time.Unix(100, 999_999_999), time.Unix(101, 0), time.Unix(90, 0), time.Unix(101, 1)} {
		got := q.timestamp(now)
		if bytes.Compare(got, last) <= 0 {
			t.Errorf("at %v the timestamp %x does not follow %x", now, got, last)
		}
		last = got
	}
	now := time.Unix(200, 3<<24)
	session := whiten(now)
	if got := q.timestamp(now); bytes.Compare(got, tai64n(session)) >= 0 || bytes.Compare(got, tai64n(whiten(session.Add(-1)))) <= 0 {
		t.Errorf("timestamp %x is not between the session's of this tick and of the one before", got)
	}
}

func TestKeysAreNeverPrinted(t *testing.T) {
	k := Keys{Private: [32]byte{0xAB, 0xCD}, Preshared: [32]byte{0xEF}}
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%+v %#v %s", k, k, &k), k.LogValue().String()} {
		if strings.Contains(strings.ToLower(text), "ab") || strings.Contains(text, "171") {
			t.Errorf("keys printed: %s", text)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	q, err := newQuestioner(Keys{Private: [32]byte{1}, PeerPublic: [32]byte{9}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(make([]byte, responseLength))
	f.Add(append([]byte{cookieType}, make([]byte, cookieLength-1)...))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		q.isQuestion(datagram)
		if _, ok := q.answered(datagram); ok {
			t.Error("accepted")
		}
		if _, ok := q.cookie(datagram, make([]byte, initiationLength)); ok {
			t.Error("a cookie was accepted")
		}
	})
}
