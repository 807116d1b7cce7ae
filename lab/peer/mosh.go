package peer

import (
	"context"
	"os/exec"
	"time"

	"github.com/hinshun/vt10x"

	"heddle/lab"
)

// MoshHost is a host where ssh can start the unmodified mosh-server.
type MoshHost struct {
	*SSH
	Name string // that clients in the world use
}

// Mosh prepares a host of ThreeWays for mosh, in an existing directory. It fails with [ErrMissing] without mosh or sshd.
func Mosh(ctx context.Context, host *lab.Host, work string) (*MoshHost, error) {
	for _, program := range []string{"mosh-server", "mosh-client"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, missing(program, "apt-get install mosh")
		}
	}
	ssh, err := SSHServer(ctx, host, work)
	if err != nil {
		return nil, err
	}
	return &MoshHost{SSH: ssh, Name: host.Name() + ".example"}, nil
}

// Split starts `heddle mosh` in an 80x24 terminal on a host, and waits for mosh-client's screen. flags select the
// paths; command runs on the server.
func (m *MoshHost) Split(ctx context.Context, client *lab.Host, heddle string, flags []string, command ...string) (*Terminal, error) {
	args := append([]string{"mosh", m.Name, "--ssh-config", m.Config}, flags...)
	return m.client(ctx, client, heddle, append(append(args, "--"), command...))
}

// Plain starts the machine's unmodified mosh over the default route.
func (m *MoshHost) Plain(ctx context.Context, client *lab.Host, command ...string) (*Terminal, error) {
	return m.client(ctx, client, "mosh", append([]string{"--ssh=ssh -F " + m.Config, m.Name, "--"}, command...))
}

func (m *MoshHost) client(ctx context.Context, host *lab.Host, program string, args []string) (*Terminal, error) {
	t, err := StartTerminal(ctx, host, 80, 24, "nice", hurried(program, args...)...)
	if err != nil {
		return nil, err
	}
	// mosh-client switches to the alternate screen, and only after ssh is done.
	if err := t.Await(ctx, moshStart, func([]string) bool { return t.screen.Mode()&vt10x.ModeAltScreen != 0 }); err != nil {
		t.Stop()
		return nil, err
	}
	return t, nil
}

const moshStart = time.Minute // ssh and both programs start, on a busy machine
