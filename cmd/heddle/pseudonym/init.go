package pseudonym

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/atomicfile"
	"heddle/path"
	"heddle/pseudonym"
	"heddle/pseudonym/cloud"
)

// initFlags are those of `heddle pseudonym init`.
type initFlags struct {
	Dir     string   `flag:"dir" help:"make the files in <DIR>; one of the zone's name where it is not given" complete:"dir"`
	Gateway []string `flag:"gateway" help:"a public <ADDRESS> of the gateway"`
	Renew   bool     `flag:"renew" help:"make a new issuing certificate only, with the root's key, and a gateway.key and address.key if there are none"`
	Import  string   `flag:"import" help:"take an intermediate of your own CA for the issuing certificate: a PEM <FILE> with its chain up to the root" complete:"file"`
	Key     string   `flag:"import-key" help:"the <FILE> of the intermediate's private key, PKCS #8 in PEM" complete:"file"`
}

// fileName is the operator's file in a directory of init.
const fileName = "cloud.toml"

func newInitCommand() *cobra.Command {
	var f initFlags
	return bind.Flags(&cobra.Command{
		Use:   "init ZONE",
		Short: "Make the keys and the file of a cloud",
		Long: `Init makes what an operator needs: a root certificate, which users have to
trust, an issuing key that the root permits for ZONE only, the keys that seal
the secrets of the store and of the gateways in the database, a key that signs
the zone, and a cloud.toml for serve. It replaces nothing.

The root's key is needed for --renew only: move root-key.pem off the machine.
The issuing certificate ends after two years.

With --import the issuing certificate is an intermediate of your own CA. Its
name constraints have to permit ZONE alone and exclude all addresses; init says
what is wrong. Users trust your CA's root then, which may vouch for other names
too. With --renew as well it replaces an intermediate by a new one of the same
key.

ZONE is a domain of yours. Delegate it to the machine of serve, where the
nameserver runs, and have it added to the public suffix list, so that tenants
cannot set cookies for each other.`,
		Example: `  heddle pseudonym init cloud.example --gateway 192.0.2.1 --dir /etc/heddle/cloud
  heddle pseudonym init cloud.example --dir /etc/heddle/cloud --renew
  heddle pseudonym init cloud.example --gateway 192.0.2.1 --import chain.pem --import-key key.pem`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			zone, err := pseudonym.ParseZone(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			if f.Dir == "" {
				f.Dir = string(zone)
			}
			if (f.Import == "") != (f.Key == "") {
				return cli.Usage(&path.Error{What: "--import", Why: "it needs --import-key, and that one --import", Hint: "give the chain and the key of the intermediate"})
			}
			if f.Renew {
				renew := cloud.Renew
				if f.Import != "" {
					renew = func(dir string, zone pseudonym.Zone, now time.Time) (time.Time, error) {
						return cloud.ImportRenewed(dir, zone, f.Key, f.Import, now)
					}
				}
				until, err := renew(f.Dir, zone, time.Now())
				if err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "pseudonym: the new issuing certificate ends on %s; start serve again\n", until.Format(time.DateOnly))
				}
				return err
			}
			return runInit(cmd, zone, f)
		},
	}, &f)
}

// cloudFile is the format of the operator's file: of its zone, and of its gateways in quotes.
const cloudFile = `# A cloud's pseudonyms, for heddle pseudonym serve.
zone = "%[1]s"
gateways = [%[2]s]   # public addresses of the gateway
listen = [":443"]             # the gateway
dns = [":53"]                 # the nameserver, UDP and TCP
store = "127.0.0.1:4480"      # where the store listens, and the gateway finds it
linker = "127.0.0.1:4482"     # where the linker listens, and the gateway finds it
tenants = ":4481"             # where the sidecars of tenants ask the store
database = "pseudonyms.db"    # or postgres://HOST/NAME for several machines
life = "2160h"                # of a pseudonym, until its holder renews it
most = 200                    # pseudonyms of one person
work = 20                     # 2^20 hashes for one registration too many of an address; 0: those have to wait
audit = "audit.log"           # counts of what happens, without names; "" for none
# certificate = "fullchain.pem"         # of a public CA, for store.%[1]s and linker.%[1]s
# key = "privkey.pem"
# stores = ["192.0.2.1:4480", "192.0.2.2:4480"]   # all stores, if there are several; linkers is the same for linkers
# gateway-mode = "auto"                 # or v6, handoff, fdpass, proxy: how the gateway leads connections to sites
# gateway-switch = "auto"               # or bpf, nft, ovs: what leads the packets of connections that the gateway handed over
# gateway-bridge = "br0"                # of Open vSwitch, for gateway-switch = "ovs"
# switch = "unix:/run/heddle-switch/socket"  # where serve --only switch holds and leads what a gateway without rights hands over
# switch-group = "heddle-pseudonym"     # the group of that gateway's user
# switch-shares = false                 # true: several switches know each other's connections by the database, so that one can take another's place
# v6-prefix = "2001:db8:77:1::/64"      # pseudo-addresses, a prefix that is routed to this machine
# v6-device = "eth0"                    # where clients' packets arrive
# metrics = "127.0.0.1:9480"            # for Prometheus
# login = "https://accounts.example"   # people need an account there (OpenID Connect)
# login-client = "pseudonyms"          # let it lead back to https://store.%[1]s/login/done
# login-secret = "login-secret"        # file
`

func runInit(cmd *cobra.Command, zone pseudonym.Zone, f initFlags) error {
	if len(f.Gateway) == 0 {
		return cli.Usage(&path.Error{What: "--gateway", Why: "the nameserver has no address to give", Hint: "the public address of this machine, such as --gateway 192.0.2.1"})
	}
	for _, text := range f.Gateway {
		if _, err := netip.ParseAddr(text); err != nil {
			return cli.Usage(&path.Error{What: "--gateway " + text, Why: "it is no address", Hint: "such as 192.0.2.1"})
		}
	}
	create := func() error { return cloud.Create(f.Dir, zone, time.Now()) }
	if f.Import != "" {
		create = func() error { return cloud.Import(f.Dir, zone, f.Key, f.Import, time.Now()) }
	}
	if err := create(); err != nil {
		return err
	}
	text := fmt.Sprintf(cloudFile, zone, `"`+strings.Join(f.Gateway, `", "`)+`"`)
	file := filepath.Join(f.Dir, fileName)
	if err := atomicfile.CreatePrivate(file, []byte(text)); err != nil {
		return err
	}
	made := "made " + file + " and its keys; keep " + cloud.RootKey + " elsewhere"
	if f.Import != "" {
		made = "made " + file + " with the intermediate " + f.Import
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "pseudonym: %s; give %s to tenants and users\n", made, cloud.Root)
	return nil
}
