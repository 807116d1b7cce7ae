package peer

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"heddle/lab"
)

// Ports of relays and bridges in a private Tor network.
const (
	torORPort   = 5001
	torDirPort  = 7001
	torPatience = 5 * time.Minute // for a consensus, or a bootstrap, on a busy machine
)

// torCommon is in each torrc. Addresses and times of a private network are unusual for Tor, and padding would differ between runs.
const torCommon = `TestingTorNetwork 1
PathsNeededToBuildCircuits 0.67
EnforceDistinctSubnets 0
ExtendAllowPrivateAddresses 1
ClientRejectInternalAddresses 0
ClientDNSRejectInternalAddresses 0
DoSCircuitCreationEnabled 0
DoSConnectionEnabled 0
ShutdownWaitLength 0
SafeLogging 0
AvoidDiskWrites 1
NumCPUs 1
Log notice stdout
DataDirectory %[1]s
ControlSocket %[1]s/control
`

const torRelay = `Nickname %[1]s
Address %[2]s
OutboundBindAddress %[2]s
ORPort %[2]s:%[3]d IPv4Only
SocksPort 0
AssumeReachable 1
ContactInfo heddle lab
`

// A consensus every ten seconds is the fastest that Tor makes, and comes until one names all relays. V3AuthNIntervalsValid lets
// clients keep one for as long as an experiment lasts.
const torAuthority = `DirPort %[1]s:%[2]d
AuthoritativeDirectory 1
V3AuthoritativeDirectory 1
ExitRelay 1
ExitPolicyRejectPrivate 0
ExitPolicy accept *:*
ServerDNSDetectHijacking 0
ServerDNSTestAddresses
TestingV3AuthInitialVotingInterval 10
TestingV3AuthInitialVoteDelay 2
TestingV3AuthInitialDistDelay 2
V3AuthVotingInterval 10
V3AuthVoteDelay 2
V3AuthDistDelay 2
V3AuthNIntervalsValid 100
TestingDirAuthVoteExit *
TestingDirAuthVoteGuard *
TestingDirAuthVoteHSDir *
TestingMinExitFlagThreshold 0
`

// torVoteSeldom replaces the interval once all relays are in a consensus.
const torVoteSeldom = `SETCONF V3AuthVotingInterval="5 minutes" V3AuthVoteDelay="20 seconds" V3AuthDistDelay="20 seconds"`

// Tor is one running tor.
type Tor struct {
	*Process
	Dir     string // its DataDirectory, which goes with the world
	control *textproto.Conn
}

// TorNetwork is a private Tor network in a world of [lab.Tor]. Its three authorities are its relays and exits.
type TorNetwork struct {
	Authorities []*Tor
	lines       string // that name the authorities in each torrc
}

// TorSupported returns nil, or an error that wraps [ErrMissing].
func TorSupported() error {
	for _, program := range []string{"tor", "tor-gencert"} {
		if _, err := exec.LookPath(program); err != nil {
			return missing(program, "apt-get install tor")
		}
	}
	return nil
}

// StartTor starts the authorities, and waits until they agree on a consensus that names all of them. It fails with [ErrMissing]
// without tor.
func StartTor(ctx context.Context, in *lab.Instance) (*TorNetwork, error) {
	n := &TorNetwork{}
	for _, name := range lab.TorAuthorities {
		line, err := newAuthority(ctx, in.Host(name))
		if err != nil {
			return nil, err
		}
		n.lines += line
	}
	for _, name := range lab.TorAuthorities {
		host := in.Host(name)
		a, err := n.start(ctx, host, name, relayConfig(host)+fmt.Sprintf(torAuthority, host.Addrs()[0], torDirPort))
		if err != nil {
			return nil, err
		}
		n.Authorities = append(n.Authorities, a)
	}
	for _, a := range n.Authorities {
		if err := a.AwaitFor(ctx, torPatience, a.complete); err != nil {
			return nil, err
		}
	}
	for _, a := range n.Authorities {
		if _, err := a.Ask(torVoteSeldom); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func relayConfig(host *lab.Host) string {
	return fmt.Sprintf(torRelay, host.Name(), host.Addrs()[0], torORPort)
}

// torDir makes the DataDirectory of a tor, which refuses one that others can read.
func torDir(host *lab.Host, name string) (string, error) {
	dir := filepath.Join(host.Dir(), "tor-"+name)
	return dir, os.MkdirAll(filepath.Join(dir, "keys"), 0o700)
}

var (
	v3Fingerprint = regexp.MustCompile(`(?m)^fingerprint ([0-9A-F]{40})$`)
	fingerprint   = regexp.MustCompile(`(?m)^\S+ ([0-9A-F]{40})$`)
)

// newAuthority makes the keys of an authority, and returns its line for each torrc.
func newAuthority(ctx context.Context, host *lab.Host) (string, error) {
	if err := TorSupported(); err != nil {
		return "", err
	}
	dir, err := torDir(host, host.Name())
	if err != nil {
		return "", err
	}
	addr, keys := host.Addrs()[0].String(), filepath.Join(dir, "keys")
	directory := fmt.Sprintf("%s:%d", addr, torDirPort)
	gencert := host.Command(ctx, "tor-gencert", "--create-identity-key", "--passphrase-fd", "0", "-m", "12", "-a", directory)
	gencert.Dir, gencert.Stdin = keys, strings.NewReader("heddle\n")
	if out, err := gencert.CombinedOutput(); err != nil {
		return "", fmt.Errorf("tor-gencert on %s: %w: %s", host.Name(), err, out)
	}
	// tor makes the relay's key when it lists its fingerprint. It needs some authority to begin with.
	file := filepath.Join(dir, "torrc")
	text := fmt.Sprintf(torCommon, dir) + relayConfig(host) +
		"DirAuthority none orport=1 v3ident=" + strings.Repeat("AB", 20) + " 192.0.2.1:1 " + strings.Repeat("AB", 20) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	if out, err := host.Command(ctx, "tor", "-f", file, "--list-fingerprint").CombinedOutput(); err != nil {
		return "", fmt.Errorf("tor --list-fingerprint on %s: %w: %s", host.Name(), err, out)
	}
	v3, err := match(filepath.Join(keys, "authority_certificate"), v3Fingerprint)
	if err != nil {
		return "", err
	}
	relay, err := match(filepath.Join(dir, "fingerprint"), fingerprint)
	return fmt.Sprintf("DirAuthority %s orport=%d no-v2 v3ident=%s %s %s\n", host.Name(), torORPort, v3, directory, relay), err
}

// match returns the first group of a pattern in a file.
func match(file string, pattern *regexp.Regexp) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	found := pattern.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s does not match %s", file, pattern)
	}
	return string(found[1]), nil
}

// start starts a tor of the network on a host, and waits until it answers on its control socket.
func (n *TorNetwork) start(ctx context.Context, host *lab.Host, name, config string) (*Tor, error) {
	dir, err := torDir(host, name)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "torrc")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(torCommon, dir)+n.lines+config), 0o600); err != nil {
		return nil, err
	}
	p, err := Start(ctx, host, "tor", "-f", file)
	if err != nil {
		return nil, err
	}
	t := &Tor{Process: p, Dir: dir}
	_, err = p.OrStop(p.Await(ctx, func() (err error) {
		t.control, err = textproto.Dial("unix", filepath.Join(dir, "control"))
		return err
	}))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { t.control.Close() })
	_, err = t.Ask("AUTHENTICATE")
	_, err = p.OrStop(err)
	return t, err
}

// Ask sends one command to tor, and returns the text of the answer (control-spec, section 2). It may not run concurrently.
func (t *Tor) Ask(command string) (string, error) {
	if err := t.control.PrintfLine("%s", command); err != nil {
		return "", err
	}
	answer, err := t.answer()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", t.Process.Name(), command, err)
	}
	return answer, err
}

// answer reads an answer, which may have data of several lines.
func (t *Tor) answer() (string, error) {
	var all []string
	for {
		line, err := t.control.ReadLine()
		if err != nil {
			return "", err
		}
		if len(line) < 4 || !strings.HasPrefix(line, "250") {
			return "", errors.New(line)
		}
		all = append(all, line[4:])
		switch line[3] {
		case ' ':
			return strings.Join(all, "\n"), nil
		case '+':
			data, err := t.control.ReadDotLines()
			if err != nil {
				return "", err
			}
			all = append(all, data...)
		}
	}
}

// complete returns nil once an authority has a consensus that names all authorities as relays that a client can use.
func (t *Tor) complete() error {
	consensus, err := os.ReadFile(filepath.Join(t.Dir, "cached-consensus"))
	if err != nil {
		return errors.New("there is no consensus")
	}
	usable := 0
	for line := range strings.Lines(string(consensus)) {
		flags, isFlags := strings.CutPrefix(strings.TrimSpace(line), "s ")
		flags = " " + flags + " "
		if isFlags && strings.Contains(flags, " Exit ") && strings.Contains(flags, " Guard ") && strings.Contains(flags, " Running ") {
			usable++
		}
	}
	if usable < len(lab.TorAuthorities) {
		return fmt.Errorf("the consensus names %d usable relays", usable)
	}
	return nil
}

// bootstrapped returns nil once tor has built a circuit.
func (t *Tor) bootstrapped() error {
	phase, err := t.Ask("GETINFO status/bootstrap-phase")
	if err == nil && !strings.Contains(phase, "PROGRESS=100 ") {
		err = errors.New(phase)
	}
	return err
}

// Client starts a tor with a SOCKS port on loopback of a host, and waits until it has built a circuit. It uses a bridge if line is
// not empty; transports must hold that of the line.
func (n *TorNetwork) Client(ctx context.Context, host *lab.Host, name string, socks uint16, line string, transports ...TorTransport) (*Tor, error) {
	c, err := n.StartClient(ctx, host, name, socks, line, transports...)
	if err != nil {
		return nil, err
	}
	_, err = c.OrStop(c.AwaitBootstrap(ctx))
	return c, err
}

// StartClient is [TorNetwork.Client] for a client that may never build a circuit.
func (n *TorNetwork) StartClient(ctx context.Context, host *lab.Host, name string, socks uint16, line string, transports ...TorTransport) (*Tor, error) {
	// Conflux would send a stream by two circuits in some runs and by one in others.
	config := fmt.Sprintf("SocksPort 127.0.0.1:%d\nConfluxEnabled 0\nNumEntryGuards 1\n", socks)
	for _, t := range transports {
		config += "ClientTransportPlugin " + t.Name + " exec " + strings.Join(t.Exec, " ") + "\n"
	}
	if line != "" {
		config += "UseBridges 1\nBridge " + line + "\n"
	}
	return n.start(ctx, host, name, config)
}

// AwaitBootstrap waits until tor has built a circuit.
func (t *Tor) AwaitBootstrap(ctx context.Context) error {
	return t.AwaitFor(ctx, torPatience, t.bootstrapped)
}

// BySOCKS are the arguments for [Curl] to fetch by a SOCKS port on loopback of its host. The host looks names up, since no nameserver
// answers the exits of a private Tor network.
func BySOCKS(port uint16) []string { return []string{"--socks5", fmt.Sprintf("127.0.0.1:%d", port)} }
