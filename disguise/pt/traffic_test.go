package pt

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"heddle/disguise/handshake"
	"heddle/internal/socks5"
	"heddle/internal/tcptest"
)

// ask connects to a transport as Tor does: the arguments of the bridge line are user and password.
func ask(t *testing.T, at string, arguments string, to netip.AddrPort) (net.Conn, error) {
	t.Helper()
	c := connect(t, at)
	who := &socks5.Credentials{User: arguments, Password: "\x00"}
	if len(arguments) > 255 {
		who.User, who.Password = arguments[:255], arguments[255:]
	}
	if err := socks5.Greet(c, who); err != nil {
		return nil, err
	}
	_, err := socks5.Request(c, socks5.Connect, socks5.Target{Addr: to.Addr(), Port: to.Port()})
	return c, err
}

func connect(t *testing.T, at string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends a megabyte and its end, and expects both back.
func exchange(t *testing.T, c net.Conn) {
	t.Helper()
	out := make([]byte, 1<<20)
	rand.Read(out)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(out)
		sent <- errors.Join(err, c.(interface{ CloseWrite() error }).CloseWrite())
	}()
	in, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil || !bytes.Equal(in, out) {
		t.Errorf("%d of %d bytes came back: %v", len(in), len(out), err)
	}
}

// arguments are those of a bridge line, as Tor joins them.
func arguments(a handshake.Args) string {
	var all []string
	for _, pair := range a.Pairs() {
		all = append(all, pair[0]+"="+pair[1])
	}
	return strings.Join(all, ";")
}

func TestClientCarries(t *testing.T) {
	p := start(t, clientEnvironment()...)
	at := p.method("CMETHOD")
	idle := connect(t, at) // keeps nobody from being served
	defer idle.Close()
	far := tcptest.Serve(t, tcptest.Echo)
	good := handshake.Args{Key: handshake.PublicKey{1}, Token: bytes.Repeat([]byte("t"), 20), Covers: []string{strings.Repeat("c", 63), strings.Repeat("d", 63), strings.Repeat("e", 63)}}
	if n := len(arguments(good)); n < 256 {
		t.Fatalf("%d bytes fit into a user name", n)
	}
	c, err := ask(t, at, arguments(good), far)
	if err != nil {
		t.Fatal(err, p.line())
	}
	if line, want := p.line(), `LOG SEVERITY=info MESSAGE="dial key=`+good.Key.String()+` token=`+string(good.Token)+`"`; line != want {
		t.Errorf("%s\nwant %s", line, want)
	}
	if line, want := p.line(), "STATUS TRANSPORT=heddle ADDRESS="+far.String()+" CONNECT=Success"; line != want {
		t.Errorf("%s\nwant %s", line, want)
	}
	exchange(t, c)

	closed := tcptest.Serve(t, nil)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := netip.MustParseAddrPort(nobody.Addr().String())
	nobody.Close()
	cut := arguments(handshake.Args{Key: good.Key})
	for _, c := range []struct {
		name, arguments string
		to              netip.AddrPort
		want            error
		line            string
	}{
		{"nobody there", cut, gone, socks5.Refused, "STATUS TRANSPORT=heddle ADDRESS=" + gone.String() + ` CONNECT=Failed ERRSTR="`},
		{"a cut key", cut[:20], closed, socks5.NotAllowed, `LOG SEVERITY=error MESSAGE="a bridge cannot be used: bridge line: key= is cut`},
		{"no key", "covers=random", closed, socks5.NotAllowed, `LOG SEVERITY=error MESSAGE="a bridge cannot be used: bridge line: it has no key=`},
	} {
		if _, err := ask(t, at, c.arguments, c.to); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if line := p.until(c.line[:18]); !strings.HasPrefix(line, c.line) {
			t.Errorf("%s: %s\nwant %s", c.name, line, c.line)
		}
	}
	if _, err := ask(t, at, "rubbish", closed); !errors.Is(err, socks5.ErrPassword) {
		t.Errorf("arguments that are none: %v", err)
	}
}

// extORPort is Tor's side of the extended ORPort (ext-orport-spec), which sends back what it was told, and then what arrives.
func extORPort(cookie []byte) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		c.Write([]byte{1, 0})
		chosen, nonce := make([]byte, 1), make([]byte, 32)
		io.ReadFull(c, chosen)
		io.ReadFull(c, nonce)
		ours := make([]byte, 32)
		rand.Read(ours)
		hash := func(who string) []byte {
			h := hmac.New(sha256.New, cookie)
			h.Write([]byte("ExtORPort authentication " + who + " hash"))
			h.Write(nonce)
			h.Write(ours)
			return h.Sum(nil)
		}
		c.Write(append(hash("server-to-client"), ours...))
		theirs := make([]byte, 32)
		if _, err := io.ReadFull(c, theirs); err != nil || !hmac.Equal(theirs, hash("client-to-server")) {
			return
		}
		c.Write([]byte{1})
		var told []string
		for {
			head := make([]byte, 4)
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			body := make([]byte, binary.BigEndian.Uint16(head[2:]))
			io.ReadFull(c, body)
			if binary.BigEndian.Uint16(head) == 0 { // DONE
				break
			}
			told = append(told, string(body))
		}
		c.Write([]byte{0x10, 0x00, 0, 0}) // OKAY
		io.WriteString(c, strings.Join(told, " ")+"\n")
		io.Copy(c, c)
	}
}

func TestServerTellsTorOfItsClients(t *testing.T) {
	state, cookie := t.TempDir(), bytes.Repeat([]byte{7}, 32)
	file := filepath.Join(state, "cookie")
	write := func(cookie []byte) {
		t.Helper()
		if err := os.WriteFile(file, append([]byte("! Extended ORPort Auth Cookie !\n"), cookie...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(bytes.Repeat([]byte{8}, 32))
	p := start(t, serverEnvironment(state, "TOR_PT_EXTENDED_SERVER_PORT="+tcptest.Serve(t, extORPort(cookie)).String(), "TOR_PT_AUTH_COOKIE_FILE="+file)...)
	at := p.method("SMETHOD")
	stranger := connect(t, at)
	if n, err := stranger.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("with the wrong cookie %d bytes, %v", n, err)
	}
	if line := p.until("LOG SEVERITY=error"); !strings.Contains(line, "mismatch in server hash") {
		t.Error(line)
	}
	write(cookie) // Tor writes it after it started the transport
	c := connect(t, at)
	told := make([]byte, len(c.LocalAddr().String()+" heddle\n"))
	if _, err := io.ReadFull(c, told); err != nil || string(told) != c.LocalAddr().String()+" heddle\n" {
		t.Errorf("Tor is told %q of %v, %v", told, c.LocalAddr(), err)
	}
	exchange(t, c)
}

// Tor refuses port 0 and zones, and a web server tells the addresses of clients without ports. So Tor gets port 1, and no zone.
func TestServerTellsTorOfVisitors(t *testing.T) {
	state, cookie := t.TempDir(), bytes.Repeat([]byte{7}, 32)
	file, or := filepath.Join(state, "cookie"), tcptest.Serve(t, extORPort(cookie))
	if err := os.WriteFile(file, append([]byte("! Extended ORPort Auth Cookie !\n"), cookie...), 0o600); err != nil {
		t.Fatal(err)
	}
	for client, want := range map[string]string{
		`203.0.113.7\:0`: "203.0.113.7:1 heddle\n", `203.0.113.7\:80`: "203.0.113.7:80 heddle\n", `[2001\:db8\:\:7]\:0`: "[2001:db8::7]:1 heddle\n",
		`[\:\:ffff\:203.0.113.7]\:0`: "203.0.113.7:1 heddle\n", `[fe80\:\:7%eth0]\:0`: "[fe80::7]:1 heddle\n", "nobody": "heddle\n",
	} {
		t.Run(want, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "socket")
			p := start(t, serverEnvironment(state, "TOR_PT_EXTENDED_SERVER_PORT="+or.String(), "TOR_PT_AUTH_COOKIE_FILE="+file,
				"TOR_PT_SERVER_BINDADDR=heddle-192.0.2.7:443", "TOR_PT_SERVER_TRANSPORT_OPTIONS=heddle:behind="+socket+";heddle:client="+client)...)
			if line := p.until("SMETHOD "); !strings.HasPrefix(line, "SMETHOD heddle 192.0.2.7:443 ARGS:") {
				t.Error(line)
			}
			p.until("SMETHODS DONE")
			c, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			told := make([]byte, len(want))
			if _, err := io.ReadFull(c, told); err != nil || string(told) != want {
				t.Errorf("Tor is told %q, %v", told, err)
			}
			exchange(t, c)
		})
	}
}

// A bridge offers no MPTCP: its further addresses would be no paths of ours.
func TestServerWithoutMPTCP(t *testing.T) {
	p := start(t, serverEnvironment(t.TempDir(), "TOR_PT_ORPORT="+tcptest.Serve(t, tcptest.Echo).String())...)
	var d net.Dialer
	d.SetMultipathTCP(true)
	c, err := d.Dial("tcp", p.method("SMETHOD"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c)
	if by, err := c.(*net.TCPConn).MultipathTCP(); by || err != nil {
		t.Errorf("by MPTCP %v, %v", by, err)
	}
}

func TestServerCarriesToTheORPort(t *testing.T) {
	p := start(t, serverEnvironment(t.TempDir(), "TOR_PT_ORPORT="+tcptest.Serve(t, tcptest.Echo).String())...)
	exchange(t, connect(t, p.method("SMETHOD")))
	dead := start(t, serverEnvironment(t.TempDir())...) // nobody is at the ORPort
	if n, err := connect(t, dead.method("SMETHOD")).Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("of a dead ORPort %d bytes, %v", n, err)
	}
	if line := dead.until("LOG SEVERITY=error"); !strings.Contains(line, "connection refused") {
		t.Error(line)
	}
}

// Each end ends the connections too.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(*transport){
		"stdin":   func(p *transport) { p.stdin.Close() },
		"SIGTERM": func(p *transport) { p.Process.Signal(syscall.SIGTERM) },
		"SIGINT":  func(p *transport) { p.Process.Signal(syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			client := start(t, clientEnvironment()...)
			c, err := ask(t, client.method("CMETHOD"), arguments(handshake.Args{}), tcptest.Serve(t, tcptest.Echo))
			if err != nil {
				t.Fatal(err)
			}
			server := start(t, serverEnvironment(t.TempDir(), "TOR_PT_ORPORT="+tcptest.Serve(t, tcptest.Echo).String())...)
			d := connect(t, server.method("SMETHOD"))
			for p, c := range map[*transport]net.Conn{client: c, server: d} {
				if _, err := c.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				end(p)
				if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("the connection lasts: %d bytes, %v", n, err)
				}
				told := false
				for line := range p.lines {
					told = told || strings.Contains(line, "the bridge was told")
				}
				if told != (p == client) {
					t.Errorf("the bridge was told: %v", told)
				}
				if code := p.code(); code != 0 {
					t.Errorf("exit status %d", code)
				}
			}
		})
	}
}

// Without TOR_PT_EXIT_ON_STDIN_CLOSE the end of stdin means nothing, and the end of the parent is noticed.
func TestEndOfTheParent(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The shell stays until its stdin ends. The transport has another stdin, which ends at once.
	p := startAs(t, clientEnvironment("TOR_PT_EXIT_ON_STDIN_CLOSE="), shell, "-c", `"$0" </dev/null & cat >/dev/null`, self)
	at := p.method("CMETHOD")
	connect(t, at).Close()
	p.stdin.Close()
	if line := p.line(); line != "" { // the transport's end closes its stdout
		t.Error(line)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("the transport outlives its parent")
	}
}
