package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"heddle/internal/netutil"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/gateway"
)

// PseudonymAgent is the file of an agent, or the flags of `heddle pseudonym tenant agent`.
type PseudonymAgent struct {
	Identity   string   `toml:"identity" help:"the <FILE> of the sidecar's private key, which heddle pseudonym tenant key makes" complete:"file"`
	GatewayKey string   `toml:"gateway-key" help:"the <KEY> of the cloud's gateways, as heddle pseudonym gateway-key prints it"`
	Listen     string   `toml:"listen" help:"where gateways come to, <[HOST]:PORT>"`
	To         string   `toml:"to" help:"where the sidecar listens, unix:FILE; or a server that reads the PROXY protocol, <proxy:HOST:PORT> or proxy:unix:FILE"`
	Direct     []string `toml:"direct" help:"the <ADDRESS> of a gateway, from which this machine answers clients itself, past the gateway; each of them if there are several" list:"commas"`
}

// DefaultPseudonymAgent returns the default settings.
func DefaultPseudonymAgent() PseudonymAgent {
	return PseudonymAgent{Identity: DefaultPseudonymTenant().Identity, Listen: ":4444"}
}

// LoadPseudonymAgent reads the file of an agent. It fails with all its [Problems].
func LoadPseudonymAgent(file string) (PseudonymAgent, error) {
	a := DefaultPseudonymAgent()
	err := loadFlat(file, &a, func() problems { return a.problems() })
	besideFiles(filepath.Dir(file), &a.Identity)
	return a, err
}

func (a PseudonymAgent) problems() problems {
	wrong := problems{}
	wrong.add("listen", checkListen(a.Listen))
	if _, err := a.Gateways(); err != nil {
		wrong.say("gateway-key", "it is not sha256:HEX", "heddle pseudonym gateway-key prints it where a gateway runs")
	}
	if _, err := a.DirectAddresses(); err != nil {
		wrong.say("direct", err.Error(), "such as 192.0.2.1, as in gateways of the cloud")
	}
	server := a.Server()
	file, ok := netutil.UnixFile(a.To)
	if server != "" {
		file, ok = netutil.UnixFile(server)
	}
	switch {
	case ok:
		wrong.add("to", checkUnixFile("to", file))
	case server != "":
		wrong.add("to", CheckHostPort("to", server, "such as proxy:127.0.0.1:4443"))
	default:
		wrong.say("to", fmt.Sprintf("%q is neither unix:FILE nor proxy:ADDRESS", a.To), "such as unix:/run/heddle-news/sidecar, where the sidecar has --listen")
	}
	return wrong
}

// Check returns the first error of the flags, named by its flag.
func (a PseudonymAgent) Check() error { return a.problems().first() }

// Gateways returns the key of the cloud's gateways.
func (a PseudonymAgent) Gateways() (key ca.KeyID, err error) {
	return key, key.UnmarshalText([]byte(a.GatewayKey))
}

// DirectAddresses returns those of gateways from which the machine answers clients.
func (a PseudonymAgent) DirectAddresses() (all []netip.Addr, err error) {
	for _, text := range a.Direct {
		at, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		all = append(all, at.Unmap())
	}
	return all, nil
}

// Sidecar returns the file of the sidecar's socket, empty for another server.
func (a PseudonymAgent) Sidecar() string {
	file, ok := netutil.UnixFile(a.To)
	if !ok {
		return ""
	}
	return file
}

// Server returns where a server reads the PROXY protocol, HOST:PORT or unix:FILE, empty for a sidecar.
func (a PseudonymAgent) Server() string {
	server, ok := strings.CutPrefix(a.To, gateway.ProxyPrefix)
	if !ok {
		return ""
	}
	return server
}
