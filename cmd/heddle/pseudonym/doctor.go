package pseudonym

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/publicsuffix"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/checks"
	"heddle/cmd/heddle/internal/cli"
	"heddle/config"
	"heddle/internal/errhint"
	"heddle/internal/netutil"
	"heddle/internal/sysctl"
	"heddle/internal/text"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/database"
	"heddle/pseudonym/gateway"
	"heddle/pseudonym/gateway/v6switch"
)

// checkFor bounds one question to the network.
const checkFor = 5 * time.Second

// soon is when an operator has to think of a certificate's end.
const soon = 60 * 24 * time.Hour

func newDoctorCommand() *cobra.Command {
	var f struct {
		bind.Printing
		Agent bool `flag:"agent" help:"FILE is that of an agent: check the machine of a site"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "doctor FILE",
		Short: "Check a cloud, and say what to do",
		Long: `Doctor looks at a cloud as its users do: keys and certificates, the database,
the public suffix list, whether this machine's nameserver finds the zone,
whether the gateways lead to the store, whether the sidecars can be reached from
here, whether this machine may hand connections over to tenants with an agent,
and whether a switch may and does lead to tenants by pseudo-addresses. Run it
where the store runs, which has the keys. It changes nothing, and talks to the
cloud alone.

With --agent it looks at the machine of a site instead: whether the agent may
take over connections there, whether something takes them from it, and whether
the kernel sends as those of other machines do.`,
		Example: `  heddle pseudonym doctor cloud.toml
  heddle pseudonym doctor --agent /etc/heddle/agent.toml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []checks.Result
			if f.Agent {
				a, err := config.LoadPseudonymAgent(args[0])
				if err != nil {
					return err
				}
				all = examineAgent(cmd.Context(), a)
			} else {
				c, o, err := loadCloud(cmd, args[0])
				if err != nil {
					return err
				}
				o.Log = slog.New(slog.DiscardHandler)
				all = examine(cmd.Context(), c, o)
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), all)
			}
			return checks.Print(cmd.OutOrStdout(), all)
		},
	}, &f)
}

// examine runs all checks.
func examine(ctx context.Context, c config.PseudonymCloud, o cloud.Options) (all []checks.Result) {
	add := func(name string, r checks.Result) {
		r.Check = name
		all = append(all, r)
	}
	add("keys", checkKeys(o, time.Now()))
	add("root-key", checkRootKey(o))
	add("public-suffix", checkSuffix(string(o.Zone)))
	add("delegation", checkDelegation(ctx, o))
	for _, a := range o.Gateways {
		add("gateway "+a.String(), checkGateway(ctx, c, o, a))
	}
	db, err := cloud.OpenDatabase(ctx, o)
	if err != nil {
		add("database", refused(err))
		return all
	}
	defer db.Close()
	if err := db.Check(ctx); err != nil {
		add("database", refused(err))
		return all
	}
	add("clock", checkClock(ctx, o, db, time.Now()))
	stats, err := db.Stats(ctx, time.Now())
	if err != nil {
		add("database", refused(err))
		return all
	}
	valid := 0
	for _, s := range stats {
		valid += s.Valid
	}
	add("database", checks.Result{Verdict: checks.Yes, What: text.About(valid, "valid pseudonym") + " of " + text.About(len(stats), "site")})
	add("hidden-names", checkHellos(ctx, db))
	tenants, err := db.Tenants(ctx)
	if err != nil {
		add("sidecars", refused(err))
	}
	if o.Device != "" {
		add("switch", checkSwitch(o))
	}
	moves := o.Mode == gateway.Auto || o.Mode == gateway.Handoff
	if moves && slices.ContainsFunc(tenants, func(t database.Tenant) bool { return gateway.Moves(t.Addresses) }) {
		add("handoff", checkHandoff(o))
		add("kernel", checkKernel(sysctl.Get))
	}
	for _, t := range tenants {
		if t.Site == o.Zone.Store() {
			continue
		}
		if _, ok := gateway.V6Address(t.Addresses); ok && o.Prefix.IsValid() && len(o.Ports) > 0 {
			add("v6 "+t.Site, checkPseudoAddress(ctx, o, db, t.Site))
		}
		for _, a := range t.Addresses {
			if at, direct, _ := gateway.AgentAddress(a); direct && moves {
				add("direct "+t.Site, checkDirect(o, at))
			}
		}
		add("sidecar "+t.Site, checkSidecar(ctx, t))
	}
	return all
}

func refused(err error) checks.Result {
	return checks.Result{Verdict: checks.No, What: err.Error(), Hint: errhint.Of(err)}
}

func checkKeys(o cloud.Options, now time.Time) checks.Result {
	until, err := cloud.KeysUntil(o, now)
	if err != nil {
		return refused(err)
	}
	what := "the issuing certificate ends on " + until.Format(time.DateOnly)
	if until.Sub(now) < soon {
		return checks.Result{Verdict: checks.Partly, What: what, Hint: "heddle pseudonym init --renew"}
	}
	return checks.Result{Verdict: checks.Yes, What: what}
}

// checkClock looks whether the clock jumped ahead.
func checkClock(ctx context.Context, o cloud.Options, db *database.DB, now time.Time) checks.Result {
	ahead, err := cloud.CheckClock(ctx, o, db, now)
	switch {
	case errors.Is(err, ca.ErrClock):
		return checks.Result{Verdict: checks.No, What: "it says " + now.Format(time.DateTime) + ", when the issuing certificate is not valid", Hint: "set the clock of this machine"}
	case err != nil:
		return refused(err)
	case ahead > cloud.ClockAhead:
		return checks.Result{Verdict: checks.Partly, What: "it is " + text.About(int(ahead/(24*time.Hour)), "day") + " ahead of the time that the store has run",
			Hint: "look at the date of this machine. After a pause of the store this is normal: pseudonyms that ended are deleted later"}
	}
	return checks.Result{Verdict: checks.Yes, What: "agrees with the time that the store has run"}
}

// checkHellos looks whether clients can encrypt the names that they ask for.
func checkHellos(ctx context.Context, db *database.DB) checks.Result {
	keys, err := db.Hellos(ctx, nil)
	switch {
	case err != nil:
		return refused(err)
	case len(keys) == 0:
		return checks.Result{Verdict: checks.Partly, What: "browsers send pseudonyms in clear: no gateway made a key", Hint: "give all gateways the same " + cloud.GatewayKey + ", which init --renew makes, and start them again"}
	}
	return checks.Result{Verdict: checks.Yes, What: "browsers can encrypt names, with a key of " + keys[0].Created.UTC().Format(time.DateTime)}
}

func checkRootKey(o cloud.Options) checks.Result {
	if _, err := os.Stat(filepath.Join(o.Dir, cloud.RootKey)); err == nil {
		return checks.Result{Verdict: checks.Partly, What: "the root's key is on this machine", Hint: "keep " + cloud.RootKey + " elsewhere; only init --renew needs it"}
	}
	return checks.Result{Verdict: checks.Yes, What: "the root's key is elsewhere"}
}

// checkSuffix looks at the public suffix list that this program was built with.
func checkSuffix(zone string) checks.Result {
	if suffix, _ := publicsuffix.PublicSuffix("x." + zone); suffix == zone {
		return checks.Result{Verdict: checks.Yes, What: zone + " is on the public suffix list"}
	}
	return checks.Result{Verdict: checks.Partly, What: zone + " is not on the public suffix list that this program knows", Hint: "ask for it at publicsuffix.org: browsers then keep the cookies of sites apart by themselves"}
}

func checkDelegation(ctx context.Context, o cloud.Options) checks.Result {
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", o.Zone.Store()+".")
	if err != nil {
		return checks.Result{Verdict: checks.No, What: "this machine's nameserver does not find " + o.Zone.Store(), Hint: "have the parent zone delegate " + string(o.Zone) + " to the nameserver of serve"}
	}
	for i := range found {
		found[i] = found[i].Unmap()
		if !slices.Contains(o.Gateways, found[i]) {
			return checks.Result{Verdict: checks.No, What: o.Zone.Store() + " has the address " + found[i].String(), Hint: "is that a gateway? Then add it to gateways; else look at the delegation"}
		}
	}
	return checks.Result{Verdict: checks.Yes, What: fmt.Sprintf("%s has %s of the gateways", o.Zone.Store(), text.About(len(found), "address"))}
}

// checkGateway comes to the store as a new user does.
func checkGateway(ctx context.Context, c config.PseudonymCloud, o cloud.Options, a netip.Addr) checks.Result {
	roots := x509.NewCertPool()
	root, err := os.ReadFile(filepath.Join(o.Dir, cloud.Root))
	if err != nil || !roots.AppendCertsFromPEM(root) {
		return checks.Result{Verdict: checks.Unknown, What: "there is no " + cloud.Root + " here", Hint: "copy it from where init ran"}
	}
	port := "443"
	if len(c.Listen) > 0 {
		if _, p, err := net.SplitHostPort(c.Listen[0]); err == nil {
			port = p
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{ServerName: o.Zone.Store(), RootCAs: roots, MinVersion: tls.VersionTLS13}}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), port))
	if err != nil {
		return checks.Result{Verdict: checks.No, What: "it does not lead to the store: " + err.Error(), Hint: "does serve run there, and may this machine reach it?"}
	}
	conn.Close()
	return checks.Result{Verdict: checks.Yes, What: "leads to the store"}
}

// checkSwitch looks whether this machine may lead packets to pseudo-addresses.
func checkSwitch(o cloud.Options) checks.Result {
	s, err := v6switch.New(v6switch.Options{Device: o.Device, Prefix: o.Prefix, Ports: o.Ports})
	if err == nil {
		err = errors.Join(v6switch.Routes(o.Device), s.Close())
	}
	if err != nil {
		return refused(err)
	}
	return checks.Result{Verdict: checks.Yes, What: "this machine may lead packets that arrive on " + o.Device + " to tenants"}
}

// checkHandoff looks whether this machine may hand connections over.
func checkHandoff(o cloud.Options) checks.Result {
	kind, err := cloud.CheckSwitch(o)
	if err != nil {
		r := refused(err)
		if o.Mode == gateway.Auto { // a gateway here relays them
			r.Verdict = checks.Partly
		}
		return r
	}
	if o.SwitchAt != "" {
		return checks.Result{Verdict: checks.Yes, What: "the switch at " + o.SwitchAt + " holds and leads connections for a gateway on this machine"}
	}
	return checks.Result{Verdict: checks.Yes, What: "a gateway on this machine may hand connections over, and lead them by " + string(kind)}
}

// checkDirect looks whether this machine may hand connections over to an agent that answers directly.
func checkDirect(o cloud.Options, agent string) checks.Result {
	if err := cloud.CheckDirect(o, agent); err != nil {
		return refused(err)
	}
	return checks.Result{Verdict: checks.Yes, What: "the machine of " + agent + " is a neighbour, and can answer clients itself"}
}

// checkPseudoAddress comes to a tenant as its users do.
func checkPseudoAddress(ctx context.Context, o cloud.Options, db *database.DB, site string) checks.Result {
	at, err := cloud.CheckAddress(ctx, o, db, site)
	switch {
	case errors.Is(err, pseudonym.ErrNone):
		return checks.Result{Verdict: checks.No, What: "no switch leads to it, so the gateway does", Hint: "start serve where v6-device is, and look at its log"}
	case err != nil:
		return refused(err)
	}
	if err := checkListens(ctx, netip.AddrPortFrom(at, o.Ports[0]).String()); err != nil {
		return checks.Result{Verdict: checks.No, What: "it does not answer at its pseudo-addresses: " + err.Error(), Hint: "run ip -6 route add local " + o.Prefix.String() +
			" dev lo there, and let its sidecar listen at [::]:" + fmt.Sprint(o.Ports[0]) + "; does the network route the prefix to the switch?"}
	}
	return checks.Result{Verdict: checks.Yes, What: "answers at its pseudo-addresses"}
}

func checkSidecar(ctx context.Context, t database.Tenant) checks.Result {
	var down []string
	verdict := checks.Partly
	t.Addresses = slices.DeleteFunc(slices.Clone(t.Addresses), func(a string) bool { return strings.HasPrefix(a, gateway.V6Prefix) }) // see checkPseudoAddress
	if len(t.Addresses) == 0 {
		return checks.Result{Verdict: checks.Yes, What: "it is reached by pseudo-addresses alone"}
	}
	for _, address := range t.Addresses {
		if err := checkListens(ctx, address); err != nil {
			down = append(down, err.Error())
		}
	}
	switch len(down) {
	case 0:
		return checks.Result{Verdict: checks.Yes, What: "listens on " + strings.Join(t.Addresses, ", ")}
	case len(t.Addresses):
		verdict = checks.No
	}
	return checks.Result{Verdict: verdict, What: strings.Join(down, "; "), Hint: "does heddle pseudonym tenant run there? Only gateways have to reach it"}
}

func checkListens(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	if agent, _, ok := gateway.AgentAddress(address); ok {
		address = agent
	}
	network, at := netutil.Network(address)
	conn, err := (&net.Dialer{}).DialContext(ctx, network, at)
	if err != nil {
		return err
	}
	return conn.Close()
}
