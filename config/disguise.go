package config

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"heddle/disguise/bridge"
	"heddle/disguise/client"
	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/identity"
	"heddle/internal/text"
	"heddle/path"
	"heddle/proxy/targets"
	"heddle/proxy/users"
	"heddle/schedule"
)

// DisguiseBridge is what a bridge and its line have: shared by `heddle disguise keys` and `heddle disguise serve`.
type DisguiseBridge struct {
	Identity string   `toml:"identity" help:"the <FILE> of the bridge's private key; bridge.pem beside this user's identity where it is not given" complete:"file"`
	Address  []string `toml:"address" help:"where clients reach the bridge, <ADDRESS:PORT>, for the bridge line"`
	Cover    []string `toml:"cover" help:"what clients' connections may look like, <NAME[:SETTING=VALUE]>, such as random:prefix=printable or embed:transport=udp; with port= it is at a port of its own"`
	Tokens   string   `toml:"tokens" help:"let in only clients whose bridge line has a token of <FILE>" complete:"file"`
}

// DisguiseServe is the bridge.toml of a server, or the flags of `heddle disguise serve`.
type DisguiseServe struct {
	Listen []string `toml:"listen" help:"where clients come to, <[HOST]:PORT>: TCP, and UDP for covers with transport=udp"`
	DisguiseFront
	To           string   `toml:"to" help:"lead each link to this target, <HOST:PORT> or unix:FILE, such as Tor's ORPort or an ssh server"`
	Destinations bool     `toml:"destinations" help:"lead clients also to the destinations that they ask for: public addresses, and what --allow names"`
	Allow        []string `toml:"allow" help:"lead to these addresses, <CIDR[:PORT]>"`
	Deny         []string `toml:"deny" help:"do not lead to these addresses, <CIDR[:PORT]>"`
	State        string   `toml:"state" help:"remember in <DIR> which clients' messages were seen; bridge-state beside the identity where it is not given" complete:"dir"`
	DisguiseBridge
	MaxBytes string        `toml:"max-bytes-per-connection" help:"end a connection after <SIZE> in either direction, such as 15kB; 0 never does"`
	MaxAge   time.Duration `toml:"max-age" help:"end a connection after so long at most; 0 never does"`
	MaxLinks int           `toml:"max-links" help:"how many links are served at one time"`
	Idle     time.Duration `toml:"idle" help:"end a flow of datagrams that carried nothing for so long"`
}

// DefaultDisguiseServe returns the default settings.
func DefaultDisguiseServe() DisguiseServe {
	return DisguiseServe{Listen: []string{":443"}, DisguiseBridge: DisguiseBridge{Cover: []string{client.DefaultCover}}, MaxBytes: "0",
		MaxLinks: bridge.DefaultMaxLinks, Idle: bridge.DefaultIdle}
}

// LoadDisguiseServe reads the bridge.toml of a server. It fails with all its [Problems].
func LoadDisguiseServe(file string) (DisguiseServe, error) {
	s := DefaultDisguiseServe()
	err := loadFlat(file, &s, func() problems { return s.problems() })
	besideFiles(filepath.Dir(file), &s.Identity, &s.Tokens, &s.State, &s.ACME)
	return s, err
}

func (s DisguiseServe) problems() problems {
	wrong := problems{}
	s.DisguiseBridge.check(wrong, s.front(wrong))
	if len(s.Listen) == 0 {
		wrong.say("listen", "nothing says where clients come to", "such as :443")
	}
	for i, at := range s.Listen {
		wrong.add(fmt.Sprintf("listen[%d]", i), checkListen(at))
	}
	if file, unix := strings.CutPrefix(s.To, "unix:"); s.To != "" && !unix {
		wrong.add("to", checkHostPort(s.To, "such as 127.0.0.1:22 or unix:/run/app.sock"))
	} else if unix && file == "" {
		wrong.say("to", "unix: names no file", "such as unix:/run/app.sock")
	}
	if s.To == "" && !s.Destinations {
		wrong.say("to", "the bridge leads nowhere", "a target, such as 127.0.0.1:22; or destinations, for those that clients ask for")
	}
	if _, err := targets.New(s.Allow, nil); err != nil {
		wrong.add("allow", err)
	}
	if _, err := targets.New(nil, s.Deny); err != nil {
		wrong.add("deny", err)
	}
	if !s.Destinations && len(s.Allow)+len(s.Deny) > 0 {
		wrong.say("allow", "clients cannot ask for destinations", "add destinations, or leave it out")
	}
	_, err := s.life()
	wrong.add("max-bytes-per-connection", err)
	if s.MaxLinks < 1 {
		wrong.say("max-links", fmt.Sprintf("%d is less than 1", s.MaxLinks), "leave it out for the default")
	}
	if s.Idle <= 0 {
		wrong.say("idle", fmt.Sprintf("%v is not above 0", s.Idle), "a time such as 2m")
	}
	return wrong
}

// Check returns the first error of the flags, named by its flag.
func (s DisguiseServe) Check() error { return s.problems().first() }

func (s DisguiseServe) life() (cover.Life, error) {
	n, err := text.ParseSize(s.MaxBytes)
	return cover.Life{Bytes: n, Age: s.MaxAge}, hinted(err, "such as 15kB, or 0 for no limit")
}

const overUDP = " over UDP"

func (d DisguiseBridge) check(wrong problems, front cover.Front) {
	if len(d.Cover) == 0 {
		wrong.say("cover", "the bridge has no cover", "such as "+client.DefaultCover)
	}
	seen := map[string]bool{}
	doors := map[uint16][]cover.Factory{}
	for i, spec := range d.Cover {
		key := fmt.Sprintf("cover[%d]", i)
		name, args, err := cover.ParseSpec(spec)
		over := map[bool]string{true: name + overUDP, false: name}[cover.OverUDP(args)]
		if err == nil && seen[over] {
			wrong.say(key, "the cover "+over+" is there twice", "a bridge has one set of settings for each cover")
		}
		if seen[over] = true; err == nil {
			var f cover.Factory
			if f, err = cover.New(name, cover.Options{Args: args, Front: front}); err == nil && !cover.OverUDP(args) {
				share, _ := cover.ShareOf(args) // New checked it
				doors[share.Port] = append(doors[share.Port], f)
				if share.Port > 0 && front.Behind {
					wrong.say(key, "another web server has the bridge's connections, and the cover is at a port of its own", "leave out port or behind")
				}
			}
		}
		wrong.add(key, err)
	}
	if len(doors) > 0 && doors[0] == nil && !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(over string) bool { return strings.HasSuffix(over, overUDP) }) {
		wrong.say("cover", "all covers are at ports of their own, and nothing is at the bridge's address", "leave out the port of one")
	}
	for _, all := range doors {
		_, err := cover.HostOf(all...)
		wrong.add("cover", err)
	}
	for i, at := range d.Address {
		if a, err := netip.ParseAddrPort(at); err != nil || a.Port() == 0 {
			wrong.say(fmt.Sprintf("address[%d]", i), fmt.Sprintf("%q is no address and port", at), "such as 192.0.2.9:443 or [2001:db8::9]:443; names are not possible in a bridge line")
		}
	}
}

// Check returns the first error of the flags, named by its flag.
func (d DisguiseBridge) Check() error {
	wrong := problems{}
	d.check(wrong, cover.Front{})
	return wrong.first()
}

// IdentityFile returns the file of the bridge's key.
func (d DisguiseBridge) IdentityFile() (string, error) {
	if d.Identity != "" {
		return d.Identity, nil
	}
	beside, err := identity.DefaultFile()
	return filepath.Join(filepath.Dir(beside), "bridge.pem"), err
}

// Lines returns the bridge lines for a key, one for each address, with a token that may be nil.
func (d DisguiseBridge) Lines(key handshake.PublicKey, token []byte) (lines []handshake.Line) {
	for _, text := range d.Address {
		at, _ := netip.ParseAddrPort(text)
		lines = append(lines, handshake.Line{Address: at, Args: handshake.Args{Key: key, Token: token, Covers: cover.Shared(d.Cover...)}})
	}
	return lines
}

// Bridge is what [DisguiseServe.Options] read.
type Bridge struct {
	bridge.Options
	Apart   map[uint16]map[byte]cover.Factory // those at ports of their own
	Tokens  [][]byte
	Replays *handshake.Replays // set by Open

	id    handshake.Identity
	state string
}

// Open opens the state of the bridge, which one process at a time may use. The caller closes Replays.
func (b *Bridge) Open() (err error) {
	if b.Replays, err = handshake.OpenReplays(b.state, time.Now()); err != nil {
		return err
	}
	if b.Server, err = handshake.NewServer(b.id, b.Replays, b.Tokens...); err != nil {
		b.Replays.Close()
	}
	return err
}

// Options reads the files of the bridge and converts the settings. The caller adds the log, and calls Open.
func (s DisguiseServe) Options() (o Bridge, err error) {
	if err := s.Check(); err != nil {
		return o, err
	}
	file, err := s.IdentityFile()
	if err != nil {
		return o, err
	}
	if o.id, err = handshake.LoadIdentity(file); err != nil {
		return o, err
	}
	if o.Tokens, err = ReadTokens(s.Tokens); err != nil {
		return o, err
	}
	life, err := s.life()
	if err != nil {
		return o, err
	}
	front := s.front(problems{})
	o.Behind = front.Behind
	o.Key, o.MaxLinks, o.Idle, o.Covers = o.id.Public(), s.MaxLinks, s.Idle, map[byte]cover.Factory{}
	o.DatagramCovers, o.Apart = map[byte]cover.Factory{}, map[uint16]map[byte]cover.Factory{}
	for _, spec := range s.Cover {
		name, args, err := cover.ParseSpec(spec)
		if err != nil {
			return o, err
		}
		share, err := cover.ShareOf(args)
		if err != nil {
			return o, err
		}
		for _, k := range cover.Kinds() {
			if k.Name == name {
				covers := o.Covers
				switch {
				case cover.OverUDP(args):
					covers = o.DatagramCovers
				case share.Port > 0:
					if o.Apart[share.Port] == nil {
						o.Apart[share.Port] = map[byte]cover.Factory{}
					}
					covers = o.Apart[share.Port]
				}
				if covers[k.Number], err = cover.New(name, cover.Options{Seed: o.Key[:], Life: life, Bridge: true, Front: front, Args: args}); err != nil {
					return o, err
				}
			}
		}
	}
	if s.Destinations {
		if o.Targets, err = targets.New(s.Allow, s.Deny); err != nil {
			return o, err
		}
	}
	if s.To != "" {
		o.Target = bridge.To(s.To)
	}
	o.state = cmp.Or(s.State, filepath.Join(filepath.Dir(file), "bridge-state"))
	return o, nil
}

// ReadTokens reads the tokens of a bridge, one a line in base64url. Without a file it returns none.
func ReadTokens(file string) (tokens [][]byte, err error) {
	if file == "" {
		return nil, nil
	}
	what := "tokens " + file
	info, err := os.Stat(file)
	if err != nil {
		return nil, &path.Error{What: what, Why: "it cannot be read", Err: err, Hint: "`heddle disguise keys --tokens FILE` makes one"}
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" { // which has no permission bits
		return nil, &path.Error{What: what, Why: fmt.Sprintf("others can read it (mode %#o)", mode), Hint: "chmod 600 " + file}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, &path.Error{What: what, Why: "it cannot be read", Err: err}
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		token, err := base64.RawURLEncoding.DecodeString(line)
		if err != nil || len(token) == 0 || len(token) > handshake.MaxToken {
			return nil, &path.Error{What: what, Why: fmt.Sprintf("line %d is no token", n), Hint: "`heddle disguise keys --tokens FILE` adds one; a line that begins with # is a remark"}
		}
		tokens = append(tokens, token)
	}
	if len(tokens) == 0 {
		return nil, &path.Error{What: what, Why: "it holds no token, and would let in everybody", Hint: "`heddle disguise keys --tokens FILE` adds one, or leave tokens out"}
	}
	return tokens, nil
}

// ToBridge is the To of [DisguiseDial] for the bridge's own target.
const ToBridge = "bridge"

// DisguiseDial is a client's bridge.toml, or the flags of `heddle disguise dial`.
type DisguiseDial struct {
	client.Bridge
	Listen     string     `toml:"listen" help:"where programs connect to, <HOST:PORT>: SOCKS5 and HTTP CONNECT"`
	To         string     `toml:"to" help:"lead programs to <HOST:PORT> behind the bridge, or with bridge to its own target, in place of a proxy"`
	SocksUsers users.File `toml:"socks-users" help:"let only the users in <FILE> use the proxy, with a password; heddle masque user add makes one"`
	Via        []string   `toml:"via" help:"a path that connections leave by, <NAME=KIND:ARG>, such as home=if:eth0; one flag a path" complete:"path"`
	Path       []string   `toml:"path" help:"a path beside them, <NAME=KIND:ARG>, for tunnels to ride" complete:"path"`
	Secret     []string   `toml:"secret" help:"the file that holds the password or token of a path, <NAME=FILE>"`
	Identity   string     `toml:"identity" help:"the <FILE> of this device's private key, for paths by overlay nodes" complete:"file"`
	Schedule   string     `toml:"schedule" help:"which path the next connection takes: {schedules}" complete:"schedules"`
	Alpha      float64    `toml:"alpha" help:"concentration of the Dirichlet distribution that weighted draws from"`
	Seed       *uint64    `toml:"seed" help:"make the draws repeatable (for experiments: whoever knows it knows the split)"`
	MinPaths   int        `toml:"min-paths" help:"paths that must work before anything is sent; 0 means 2, or 1 if there is one"`
	Degrade    bool       `toml:"degrade" help:"go on with fewer paths than --min-paths"`
}

// DefaultDisguiseDial returns the default settings.
func DefaultDisguiseDial() DisguiseDial {
	return DisguiseDial{Bridge: client.DefaultBridge(), Schedule: "weighted", Alpha: 1}
}

// LoadDisguiseDial reads a client's bridge.toml. It fails with all its [Problems].
func LoadDisguiseDial(file string) (DisguiseDial, error) {
	d := DefaultDisguiseDial()
	err := loadFlat(file, &d, func() problems { return d.fileProblems() })
	if err == nil {
		err = d.CheckFile(file)
	}
	d.Secret = besideSecrets(filepath.Dir(file), d.Secret)
	besideFiles(filepath.Dir(file), &d.Identity)
	besideFiles(filepath.Dir(file), &d.SocksUsers)
	return d, err
}

func init() { client.Register(loadDisguisePath) }

// loadDisguisePath reads the bridge.toml of a path. A path has one way out, so a file with several is refused.
func loadDisguisePath(file string) (client.Bridge, error) {
	d, err := LoadDisguiseDial(file)
	if wrong, ok := errors.AsType[Problems](err); ok {
		return d.Bridge, &path.Error{What: file, Why: wrong[0].What, Hint: wrong[0].Hint}
	}
	if err == nil && len(d.Via) > 0 {
		err = &path.Error{What: file, Why: "it names paths by via, and a path leaves by one way",
			Hint: "leave via out of the file, and let the path ride another: NAME=disguise:" + file + "@HOME"}
	}
	return d.Bridge, err
}

// fileProblems are those that no flag can mend.
func (d DisguiseDial) fileProblems() problems {
	wrong := d.problems()
	delete(wrong, "listen") // --listen may follow
	if line, err := handshake.ParseLine(d.Line); err == nil && len(d.Cover) == 0 && len(line.Covers) > 0 {
		delete(wrong, "cover") // so may --cover, with the site that no bridge line names
	}
	return wrong
}

func (d DisguiseDial) problems() problems {
	wrong := problems{}
	if _, err := handshake.ParseLine(d.Line); err != nil {
		wrong.add("bridge", err)
	} else {
		_, err := d.Bridge.Options()
		wrong.add("cover", err)
	}
	switch {
	case d.Listen == "":
		wrong.say("listen", "nothing says where programs connect to", "such as 127.0.0.1:1080")
	default:
		wrong.add("listen", checkListen(d.Listen))
	}
	if d.To != "" && d.To != ToBridge {
		wrong.add("to", checkHostPort(d.To, "such as web.example:80, or "+ToBridge+" for the bridge's own target"))
	}
	if d.To != "" && d.SocksUsers != "" {
		wrong.say("socks-users", "it is for the proxy, and programs are led to one target", "leave out one of the two")
	}
	_, err := d.SocksUsers.Load()
	wrong.add("socks-users", err)
	wrong.add("schedule", oneOf("schedule", d.Schedule, schedule.Names()))
	if !(d.Alpha > 0) {
		wrong.say("alpha", fmt.Sprintf("%v is not above 0", d.Alpha), "1 draws all weights alike; larger is more even, smaller less")
	}
	d.pathProblems(wrong)
	return wrong
}

func (d DisguiseDial) pathProblems(wrong problems) {
	c := checkPaths(d.Path, d.Via)
	for _, f := range c.findings {
		if !f.warning {
			wrong.say(fmt.Sprintf("%s[%d]", f.key, f.index), f.what, f.hint)
		}
	}
	if len(wrong) == 0 {
		wrong.add("via", c.carry(namesOf(d.Via), d.Carries(), "a disguised link"))
	}
	if d.MinPaths < 0 || d.MinPaths > max(len(d.Via), 1) {
		wrong.say("min-paths", fmt.Sprintf("%d paths are asked for, of %d", d.MinPaths, max(len(d.Via), 1)), "0 means 2, or 1 if there is one")
	}
	for i, text := range d.Secret {
		if name, file, _ := strings.Cut(text, "="); c.names[name] {
			wrong.add(fmt.Sprintf("secret[%d]", i), checkSecret(name, file))
		}
	}
}

// Check returns the first error of the flags, named by its flag.
func (d DisguiseDial) Check() error { return d.problems().first() }

// SessionName is the name in `heddle status` and `heddle down`.
func (d DisguiseDial) SessionName() string {
	_, port, _ := net.SplitHostPort(d.Listen)
	return "disguise-" + port
}

// Options converts the settings to the options of links. The caller adds the log.
func (d DisguiseDial) Options() (client.Options, error) {
	o, err := d.Bridge.Options()
	if err != nil {
		return o, err
	}
	o.Schedule = schedule.Config{Name: d.Schedule, Alpha: d.Alpha, Seed: d.Seed}
	o.MinPaths, o.Degrade = d.MinPaths, d.Degrade
	specs, err := parseSpecs(append(append([]string{}, d.Via...), d.Path...))
	if err != nil {
		return o, err
	}
	ways, err := path.NewSet(specs, path.Options{Secret: secrets(d.Secret), Identity: d.Identity})
	if err != nil {
		return o, err
	}
	for _, spec := range specs[:len(d.Via)] {
		o.Paths = append(o.Paths, client.Path{Name: spec.Name, Path: ways[spec.Name]})
	}
	if d.Connections == 0 {
		o.Connections = max(o.Connections, len(o.Paths))
	}
	return o, nil
}
