package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/lab"
)

func newExecCommand() *cobra.Command {
	cmd := inWorld(&cobra.Command{
		Use:   "exec HOST -- CMD [ARG...]",
		Short: "Run a program inside a host",
		Long: `Run a program inside a host of a world: in its network namespace, with the
host's own /etc/hosts, /etc/resolv.conf, /run/wireguard and HEDDLE_RUN_DIR. The
program takes the place of heddle, so its exit status is what you get.`,
		Example: `  heddle lab exec client -- curl http://server.example/
  heddle lab exec --name second server -- ip route`,
		Args: cobra.MinimumNArgs(2),
	}, func(_ *cobra.Command, in *lab.Instance, args []string) error {
		if _, err := in.LookupHost(args[0]); err != nil {
			return cli.Usage(err)
		}
		program := args[1:]
		if program[0] == "--" && len(program) > 1 { // the flag parser stops at HOST and leaves it
			program = program[1:]
		}
		return lab.Exec(in.Name(), args[0], program[0], program[1:]...)
	})
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newCaptureCommand() *cobra.Command {
	return inWorldFor(&cobra.Command{
		Use:   "capture HOST DEVICE FILE",
		Short: "Record what crosses a device of a host, as pcapng",
		Long: `Record what crosses a device of a host to a new pcapng file, until interrupted
or for as long as --for says. Super-packets of segmentation offload are taken
apart, so the file counts what the wire would carry. Packets that could not be
kept are counted; a capture that misses any ends with an error.`,
		Example: `  heddle lab capture home-gw client home.pcapng --for 10s
  heddle lab capture server core server.pcapng`,
		Args: cobra.ExactArgs(3),
	}, func(cmd *cobra.Command, in *lab.Instance, args []string) error {
		capture, err := in.Capture(cmd.Context(), args[0], args[1], args[2])
		if err != nil {
			return err
		}
		<-cmd.Context().Done()
		count, err := capture.Stop()
		fmt.Fprintf(cmd.ErrOrStderr(), "%d packets, %d bytes, %d missed\n", count.Packets, count.Bytes, count.Dropped)
		return err
	})
}

// worldAction is the action of a command in a world that is up.
type worldAction func(cmd *cobra.Command, in *lab.Instance, args []string) error

// inWorld makes cmd act in a world that is up, chosen by --name.
func inWorld(cmd *cobra.Command, do worldAction) *cobra.Command {
	var f struct {
		Name string `flag:"name" help:"which world (default: the only one)"`
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		only, err := onlyWorld(f.Name)
		if err != nil {
			return err
		}
		in, err := lab.Open(only)
		if err != nil {
			return err
		}
		defer in.Close()
		return do(cmd, in, args)
	}
	return bind.Flags(cmd, &f)
}

// inWorldFor is inWorld for an action that lasts until it is interrupted, or for the time of --for.
func inWorldFor(cmd *cobra.Command, do worldAction) *cobra.Command {
	var f struct {
		Length time.Duration `flag:"for" help:"stop after so long (default: when interrupted)"`
	}
	return inWorld(bind.Flags(cmd, &f), func(cmd *cobra.Command, in *lab.Instance, args []string) error {
		if f.Length > 0 {
			ctx, cancel := context.WithTimeout(cmd.Context(), f.Length)
			defer cancel()
			cmd.SetContext(ctx)
		}
		return do(cmd, in, args)
	})
}
