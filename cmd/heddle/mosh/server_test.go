package mosh

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// hear feeds both outputs of ssh to an answer, in pieces, and gives what is left for the person.
func hear(stdout, stderr string, piece int) (*answer, string) {
	a := &answer{found: make(chan struct{})}
	var mu sync.Mutex
	var rest strings.Builder
	for _, output := range []struct {
		text string
		take func(string) bool
	}{{stderr, a.proxy}, {stdout, a.server}} { // the proxy has its say before the server
		l := &lines{take: output.take, rest: &rest, mu: &mu}
		for chunk := range slices.Chunk([]byte(output.text), piece) {
			l.Write(chunk)
		}
		l.flush()
	}
	return a, rest.String()
}

const key = "zr0jtuYVKJnfJHP/XOOsbQ"

func TestAnswer(t *testing.T) {
	connect := "\r\n\r\nMOSH CONNECT 60001 " + key + "\r\n"
	for _, c := range []struct{ name, stdout, stderr, want, rest, why string }{
		{name: "as it should be", stdout: connect + "\r\nmosh-server (mosh 1.4.0)\r\n", stderr: "MOSH IP 192.0.2.1\n",
			want: "192.0.2.1:60001", rest: "\r\n\r\n"},
		{name: "IPv6", stdout: connect, stderr: "MOSH IP 2001:db8::1\n", want: "[2001:db8::1]:60001", rest: "\r\n\r\n"},
		{name: "warnings and a greeting", stdout: "hello\r\n" + connect, stderr: "Warning: odd\nMOSH IP 192.0.2.1\n",
			want: "192.0.2.1:60001", rest: "Warning: odd\nhello\r\n\r\n\r\n"},
		{name: "no line end", stdout: "Segmentation fault", stderr: "MOSH IP 192.0.2.1\n", rest: "Segmentation fault\n", why: "no MOSH CONNECT line"},
		{name: "a second address", stdout: connect, stderr: "MOSH IP 192.0.2.1\nMOSH IP 198.51.100.9\n", rest: "\r\n\r\n", why: "second MOSH IP"},
		{name: "an address from the server", stdout: "MOSH IP 198.51.100.9\r\n" + connect, rest: "MOSH IP 198.51.100.9\r\n\r\n\r\n", why: "its address is not known"},
		{name: "no address", stdout: connect, stderr: "MOSH IP server.example\n", rest: "\r\n\r\n", why: "gives no address"},
		{name: "a second session", stdout: connect + "MOSH CONNECT 60009 " + key + "\r\n", stderr: "MOSH IP 192.0.2.1\n",
			want: "192.0.2.1:60001", rest: "\r\n\r\n"},
		{name: "a port that is none", stdout: "MOSH CONNECT 70000 " + key + "\n", stderr: "MOSH IP 192.0.2.1\n", why: "MOSH CONNECT line that is none"},
		{name: "port 0", stdout: "MOSH CONNECT 0 " + key + "\n", stderr: "MOSH IP 192.0.2.1\n", why: "MOSH CONNECT line that is none"},
		{name: "a short key", stdout: "MOSH CONNECT 60001 short\n", stderr: "MOSH IP 192.0.2.1\n", why: "MOSH CONNECT line that is none"},
		{name: "a command behind it", stdout: "MOSH CONNECT 60001 " + key + " x\n", stderr: "MOSH IP 192.0.2.1\n", why: "MOSH CONNECT line that is none"},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			a, rest := hear(c.stdout, c.stderr, piece)
			s, err := a.session("server.example", nil)
			switch {
			case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
				t.Errorf("%s: %v, want %q", c.name, err, c.why)
			case c.why != "" && (strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "short")):
				t.Errorf("%s: a key is in %q", c.name, err)
			case c.why == "" && (err != nil || s.Addr != netip.MustParseAddrPort(c.want) || s.Key != key):
				t.Errorf("%s: %v, %v, want %s", c.name, s.Addr, err, c.want)
			}
			if rest != c.rest {
				t.Errorf("%s: left for the person: %q, want %q", c.name, rest, c.rest)
			}
		}
	}
}

func TestHowSSHEnded(t *testing.T) {
	for status, want := range map[string]string{"127": "there is no such program", "255": "ssh failed", "1": "ssh ended with 1"} {
		a := &answer{}
		if _, err := a.session("server.example", exec.Command("sh", "-c", "exit "+status).Run()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("exit status %s: %v, want %q", status, err, want)
		}
	}
}

// A line without an end must not fill the memory.
func TestEndlessLine(t *testing.T) {
	a, rest := hear(strings.Repeat("x", 3*maxLine), "", 1000)
	if a.key != "" || len(rest) < 3*maxLine {
		t.Errorf("%d bytes of %d came through", len(rest), 3*maxLine)
	}
}

func TestSSHArguments(t *testing.T) {
	s := Server{Host: "user@server.example", SSHPort: 2222, SSHConfig: "my config", Proxy: []string{"/opt/he dle", "connect", "--via", "a=src:fe80::1%eth0"},
		Port: "60000:60010", Colors: 256, Locale: []string{"LANG=C.UTF-8"}, Command: []string{"sh", "-c", "echo it's $HOME"}}
	want := []string{"-n", "-tt", "-S", "none", "-o", `ProxyCommand='/opt/he dle' connect --via 'a=src:fe80::1%%eth0' '%h' '%p'`,
		"-F", "my config", "-p", "2222", "user@server.example", "--",
		`mosh-server new -c 256 -s -p 60000:60010 -l LANG=C.UTF-8 -- sh -c 'echo it'\''s $HOME'`}
	if got := s.SSH(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// What a shell makes of quoted words must be the words.
func TestQuote(t *testing.T) {
	words := []string{"plain", "", "a b", "it's", `"`, "$HOME", "`id`", "*", "~", "=x", "a=b", "\\", "new\nline", "%h", "#", "!x"}
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+Quote(words)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("got %q, want %q", got, words)
	}
}

func TestKeyIsNotShown(t *testing.T) {
	s := Session{Addr: netip.MustParseAddrPort("192.0.2.1:60001"), Key: key}
	c := Client{Addr: s.Addr, Key: key}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v %#v %s", s, s, s.Key), fmt.Sprintf("%+v %#v", c, c), strings.Join(c.Args(), " ")} {
		if strings.Contains(text, key) {
			t.Errorf("the key is in %s", text)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add("\r\nMOSH CONNECT 60001 "+key+"\r\n", "MOSH IP 192.0.2.1\n")
	f.Add("MOSH CONNECT 1 \n", "MOSH IP ::1%x\nMOSH IP \n")
	f.Fuzz(func(t *testing.T, stdout, stderr string) {
		a, rest := hear(stdout, stderr, 5)
		s, err := a.session("h", nil)
		if (err == nil) != (s.Key != "") || err == nil && (!s.Addr.IsValid() || s.Addr.Port() == 0 || len(s.Key) != 22) {
			t.Errorf("%v, %v", s.Addr, err)
		}
		if len(rest) > len(stdout)+len(stderr)+2 {
			t.Errorf("%d bytes came out of %d", len(rest), len(stdout)+len(stderr))
		}
	})
}
