package disguise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/runner"
	"heddle/cmd/heddle/version"
	"heddle/config"
	"heddle/disguise/bridge"
	"heddle/disguise/client"
	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/disguise/pt"
	"heddle/path"
)

// ptFlags are those of `heddle disguise pt`. Each is also a setting of ServerTransportOptions, except that for clients only.
type ptFlags struct {
	config.DisguiseFront
	Cover       []string      `flag:"cover" help:"what connections look like, <NAME[:SETTING=VALUE]>; several share the links of a client by their weight, as https:weight=2\n(default: a client takes what the bridge line names)"`
	Tokens      string        `flag:"tokens" help:"let in only clients whose bridge line has a token of <FILE>" complete:"file"`
	Connections int           `flag:"connections" help:"how many connections carry a link of a client at a time; 0 is 1 with the cover https, 6 with http, and else 4"`
	MaxBytes    string        `flag:"max-bytes-per-connection" help:"replace a connection after <SIZE> in either direction, such as 15kB; 0 never does"`
	MaxAge      time.Duration `flag:"max-age" help:"replace a connection after so long at most; 0 never does"`
	MaxLinks    int           `flag:"max-links" help:"how many links a bridge serves at one time"`
}

func defaultPT() ptFlags { return ptFlags{MaxBytes: "0", MaxLinks: bridge.DefaultMaxLinks} }

func newPTCommand() *cobra.Command {
	f := defaultPT()
	return bind.Flags(&cobra.Command{
		Use:   "pt",
		Short: "Be a pluggable transport of Tor",
		Long: `Be a pluggable transport, at a bridge or at a client. Tor starts this command
and tells it the rest by environment variables, so it does nothing by itself:
heddle disguise torrc prints the lines for Tor.

At a bridge it keeps its key, and which messages of clients it saw, in the
directory heddle below Tor's pt_state, and writes the bridge line to
heddle_bridgeline.txt there. It tells Tor the addresses of its clients. Flags
are also settings of ServerTransportOptions, as max-bytes-per-connection=15kB.

With --behind your own web server is in front of it. Then it listens for that
one alone, and ServerTransportListenAddr is the web server's address, where
clients come. Tor learns the addresses of clients if --visitor-header is given.

At a client it connects to bridges by Tor's proxy, if Tor has one. Each
connection of Tor to a bridge is one link.`,
		Example: `  heddle disguise pt
  heddle disguise pt --cover random:prefix=printable --max-bytes-per-connection 15kB
  heddle disguise pt --cover https:site=site.db --behind 127.0.0.1:8081 --visitor-header X-Forwarded-For`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			slog.SetDefault(slog.New(pt.LogHandler()))
			return pt.Run(cmd.Context(), pt.Options{Version: version.Release, Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(),
				Dial: f.dial, NewBridge: f.bridge})
		},
	}, &f)
}

// dial opens a link to a bridge.
func (f ptFlags) dial(ctx context.Context, to handshake.Line, out path.Path) (net.Conn, error) {
	b := client.Bridge{Line: to.String(), Cover: f.Cover, Connections: f.Connections, MaxBytes: f.MaxBytes, MaxAge: f.MaxAge}
	o, err := b.Options()
	if err != nil {
		return nil, err
	}
	if out != nil {
		o.Paths = []client.Path{{Name: "proxy", Path: out}}
	}
	s, err := client.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// torBridge is a bridge whose target is Tor.
type torBridge struct {
	*bridge.Bridge
	replays *handshake.Replays
}

func (b *torBridge) Close() error { return b.replays.Close() }

// serve returns the settings of a bridge as `heddle disguise serve` has them, which checks them.
func (f ptFlags) serve() config.DisguiseServe {
	s := config.DefaultDisguiseServe()
	s.To = "unix:tor" // which the target of [pt.BridgeOptions] replaces
	s.DisguiseFront, s.Tokens, s.MaxBytes, s.MaxAge, s.MaxLinks = f.DisguiseFront, f.Tokens, f.MaxBytes, f.MaxAge, f.MaxLinks
	if len(f.Cover) > 0 {
		s.Cover = f.Cover
	}
	return s
}

func (f ptFlags) bridge(ctx context.Context, o pt.BridgeOptions) (made pt.Bridge, err error) {
	if err := f.set(o.Settings); err != nil {
		return made, err
	}
	s := f.serve()
	if err := s.Check(); err != nil {
		return made, err
	}
	s.Identity, s.State = filepath.Join(o.Dir, "bridge.pem"), filepath.Join(o.Dir, "seen")
	if _, _, err := handshake.LoadOrCreateIdentity(s.Identity); err != nil {
		return made, err
	}
	options, err := s.Options()
	if err != nil {
		return made, err
	}
	if len(options.Apart) > 0 {
		return made, &path.Error{What: "cover", Why: "Tor chooses one port for the transport, and a cover has a port of its own", Hint: "leave out port, or lead to Tor's ORPort with heddle disguise serve --to"}
	}
	if len(options.DatagramCovers) > 0 {
		return made, &path.Error{What: "cover", Why: "Tor's bridges are reached by TCP, and a cover has transport=udp", Hint: "leave it out, or lead to Tor's ORPort with heddle disguise serve --to"}
	}
	options.Target = o.Target
	made.Args = handshake.Args{Key: options.Key, Covers: cover.Shared(s.Cover...)}
	if len(options.Tokens) > 0 {
		made.Args.Token = options.Tokens[0]
	}
	if err := options.Open(); err != nil {
		return made, err
	}
	b, err := bridge.New(options.Options)
	if err == nil && s.Behind != "" {
		made.Listener, err = runner.Listen(ctx, "behind", s.Behind, false)
	}
	if err != nil {
		return made, errors.Join(err, options.Replays.Close())
	}
	made.Server = &torBridge{b, options.Replays}
	return made, nil
}

// set takes the settings of ServerTransportOptions.
func (f *ptFlags) set(settings map[string][]string) error {
	for name, values := range settings {
		last := values[len(values)-1]
		var err error
		switch name {
		case "behind":
			f.Behind = last
		case "visitor-header":
			f.VisitorHeader = last
		case "origin":
			f.Origin = last
		case "acme":
			f.ACME = last
		case "acme-authority":
			f.ACMEAuthority = last
		case "cover":
			f.Cover = values
		case "tokens":
			f.Tokens = last
		case "max-bytes-per-connection":
			f.MaxBytes = last
		case "max-age":
			f.MaxAge, err = time.ParseDuration(last)
		case "max-links":
			f.MaxLinks, err = strconv.Atoi(last)
		default:
			err = errors.New("it is unknown")
		}
		if err != nil {
			return &path.Error{What: "ServerTransportOptions " + name, Why: fmt.Sprintf("%.80q cannot be used", last), Err: err,
				Hint: "cover, behind, visitor-header, origin, acme, acme-authority, tokens, max-bytes-per-connection, max-age and max-links are known"}
		}
	}
	return nil
}
