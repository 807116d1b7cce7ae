package pt

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"heddle/disguise/handshake"
)

var (
	port = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
	key  = regexp.MustCompile(`key(\\?)=[A-Za-z0-9_-]{40,}`)
)

// The lines of a transport from its start to its end, which the parent asks for at once.
func TestLines(t *testing.T) {
	state := filepath.Join(t.TempDir(), "pt_state")
	file, socket := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const begin = "VERSION 1\nSTATUS TYPE=version IMPLEMENTATION=\"heddle\" VERSION=\"1.0\"\n"
	for name, c := range map[string]struct {
		environment []string
		want        string
		code        int
	}{
		"client":                 {clientEnvironment(), begin + "CMETHOD heddle socks5 ADDR\nCMETHODS DONE\n", 0},
		"client of several":      {clientEnvironment("TOR_PT_CLIENT_TRANSPORTS=obfs4,heddle,heddle"), begin + "CMETHOD-ERROR obfs4 no such transport\nCMETHOD heddle socks5 ADDR\nCMETHOD-ERROR heddle no such transport\nCMETHODS DONE\n", 0},
		"client of others":       {clientEnvironment("TOR_PT_CLIENT_TRANSPORTS=obfs4"), begin + "CMETHOD-ERROR obfs4 no such transport\nCMETHODS DONE\n", 1},
		"client by a proxy":      {clientEnvironment("TOR_PT_PROXY=socks5://user:word@127.0.0.1:1080"), begin + "PROXY DONE\nCMETHOD heddle socks5 ADDR\nCMETHODS DONE\n", 0},
		"client by odd proxy":    {clientEnvironment("TOR_PT_PROXY=ftp://127.0.0.1:21"), begin + "PROXY-ERROR proxies of kind ftp are unknown\n", 1},
		"client by no proxy":     {clientEnvironment("TOR_PT_PROXY=socks5://user:pass word@127.0.0.1"), "VERSION 1\nPROXY-ERROR TOR_PT_PROXY is no URL of a proxy\n", 1},
		"other version":          {clientEnvironment("TOR_PT_MANAGED_TRANSPORT_VER=2,3"), "VERSION-ERROR no-version\n", 1},
		"one version of several": {clientEnvironment("TOR_PT_MANAGED_TRANSPORT_VER=2,1"), begin + "CMETHOD heddle socks5 ADDR\nCMETHODS DONE\n", 0},
		"no parent":              {nil, "ENV-ERROR no TOR_PT_MANAGED_TRANSPORT_VER environment variable\n", 1},
		"odd bytes":              {clientEnvironment("TOR_PT_CLIENT_TRANSPORTS=h\u00e9ddle"), "ENV-ERROR TOR_PT_CLIENT_TRANSPORTS holds bytes that no line may hold\n", 1},
		"client and server":      {serverEnvironment(state, "TOR_PT_CLIENT_TRANSPORTS=heddle"), "ENV-ERROR both TOR_PT_CLIENT_TRANSPORTS and TOR_PT_SERVER_TRANSPORTS are set\n", 1},

		"server":                     {serverEnvironment(state), begin + "SMETHOD heddle ADDR ARGS:key=KEY\nSMETHODS DONE\n", 0},
		"server of several":          {serverEnvironment(state, "TOR_PT_SERVER_TRANSPORTS=obfs4,heddle", "TOR_PT_SERVER_BINDADDR=obfs4-127.0.0.1:0,heddle-127.0.0.1:0"), begin + "SMETHOD-ERROR obfs4 no such transport\nSMETHOD heddle ADDR ARGS:key=KEY\nSMETHODS DONE\n", 0},
		"server of others":           {serverEnvironment(state, "TOR_PT_SERVER_TRANSPORTS=obfs4", "TOR_PT_SERVER_BINDADDR=obfs4-127.0.0.1:0"), begin + "SMETHOD-ERROR obfs4 no such transport\nSMETHODS DONE\n", 1},
		"server set":                 {serverEnvironment(state, `TOR_PT_SERVER_TRANSPORT_OPTIONS=heddle:cover=random;heddle:token=secret`), begin + "SMETHOD heddle ADDR ARGS:covers=random,key=KEY\nSMETHODS DONE\n", 0},
		"server set wrongly":         {serverEnvironment(state, `TOR_PT_SERVER_TRANSPORT_OPTIONS=heddle:refuse=1`), begin + "SMETHOD-ERROR heddle bridge: it is tol? to; hint: tell it nothing\nSMETHODS DONE\n", 1},
		"server that writes nothing": {serverEnvironment(filepath.Join(file, "state")), begin + "SMETHOD-ERROR heddle mkdir " + file + ": not a directory\nSMETHODS DONE\n", 1},
		"server of a port in use":    {serverEnvironment(state, "TOR_PT_SERVER_BINDADDR=heddle-"+taken.Addr().String()), begin + "SMETHOD-ERROR heddle listen tcp ADDR: bind: address already in use\nSMETHODS DONE\n", 1},
		"server behind a web server": {serverEnvironment(state, "TOR_PT_SERVER_BINDADDR=heddle-0.0.0.0:443", "TOR_PT_SERVER_TRANSPORT_OPTIONS=heddle:behind="+socket), begin + "SMETHOD heddle 0.0.0.0:443 ARGS:key=KEY\nSMETHODS DONE\n", 0},
		"server behind nobody knows what": {serverEnvironment(state, "TOR_PT_SERVER_BINDADDR=heddle-0.0.0.0:0", "TOR_PT_SERVER_TRANSPORT_OPTIONS=heddle:behind="+socket), begin +
			"SMETHOD-ERROR heddle ServerTransportListenAddr: nothing says at which port the web server in front of the bridge has its clients; hint: write ServerTransportListenAddr heddle 0.0.0.0:443 into torrc\nSMETHODS DONE\n", 1},
		"server of no address":       {serverEnvironment(state, "TOR_PT_SERVER_BINDADDR=heddle-here:1"), "VERSION 1\nENV-ERROR TOR_PT_SERVER_BINDADDR: \"heddle-here:1\": not an IP string: \"here\"\n", 1},
		"server without Tor":         {serverEnvironment(state, "TOR_PT_ORPORT="), "VERSION 1\nENV-ERROR need TOR_PT_ORPORT or TOR_PT_EXTENDED_SERVER_PORT environment variable\n", 1},
		"server without a cookie":    {serverEnvironment(state, "TOR_PT_EXTENDED_SERVER_PORT=127.0.0.1:1"), "VERSION 1\nENV-ERROR need TOR_PT_AUTH_COOKIE_FILE environment variable with TOR_PT_EXTENDED_SERVER_PORT\n", 1},
		"server without a directory": {serverEnvironment(""), begin + "ENV-ERROR no TOR_PT_STATE_LOCATION environment variable\nSMETHOD-ERROR heddle ENV-ERROR no TOR_PT_STATE_LOCATION environment variable\nSMETHODS DONE\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, c.environment...)
			p.stdin.Close()
			var got strings.Builder
			for line := p.line(); line != ""; line = p.line() {
				got.WriteString(line + "\n")
			}
			text := key.ReplaceAllString(port.ReplaceAllString(got.String(), "ADDR"), "key=KEY")
			if text != c.want {
				t.Errorf("it writes\n%swant\n%s", text, c.want)
			}
			if code := p.code(); code != c.code {
				t.Errorf("exit status %d, want %d", code, c.code)
			}
		})
	}
}

func TestLineFile(t *testing.T) {
	data := t.TempDir()
	state := filepath.Join(data, "pt_state")
	file := filepath.Join(state, LineFile)
	read := func(more ...string) string {
		p := start(t, serverEnvironment(state, append([]string{`TOR_PT_SERVER_TRANSPORT_OPTIONS=heddle:token=secret`}, more...)...)...)
		p.until("SMETHODS DONE")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p.stdin.Close()
		if code := p.code(); code != 0 {
			t.Fatalf("exit status %d", code)
		}
		_, line, _ := strings.Cut(string(text), "\nBridge ")
		return strings.TrimSpace(line)
	}
	line := read("TOR_PT_SERVER_BINDADDR=heddle-0.0.0.0:0")
	if !regexp.MustCompile(`^heddle <ADDRESS>:[0-9]+ <FINGERPRINT> token=c2VjcmV0 key=\S+$`).MatchString(line) {
		t.Error(line)
	}
	front := read("TOR_PT_SERVER_BINDADDR=heddle-192.0.2.7:443", "TOR_PT_SERVER_TRANSPORT_OPTIONS=heddle:behind="+filepath.Join(data, "socket"))
	if !strings.HasPrefix(front, "heddle 192.0.2.7:443 <FINGERPRINT> key=") {
		t.Errorf("behind a web server: %s", front)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the line with the token: %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(data, "fingerprint"), []byte("bridge "+strings.Repeat("0A", 20)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := handshake.ParseLine(read())
	if err != nil || again.Fingerprint != strings.Repeat("0A", 20) || string(again.Token) != "secret" {
		t.Errorf("%+v, %v", again, err)
	}
	if !strings.HasSuffix(line, again.Pairs()[1][1]) {
		t.Error("the key does not outlive the transport")
	}
}
