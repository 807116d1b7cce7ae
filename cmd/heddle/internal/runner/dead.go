package runner

import (
	"fmt"
	"io"

	"heddle/split"
)

// TellDead warns of each path of the schedule that cannot send from this machine now, such as one without a device. A relay opens
// its paths for its first client only, so otherwise nobody would know until then.
func TellDead(talk io.Writer, o split.Options) error {
	ways, err := o.Paths()
	if err != nil {
		return err
	}
	for _, spec := range o.Via {
		info := ways[spec.Name].Describe()
		if info.Ready {
			continue
		}
		fmt.Fprintf(talk, "warning: path %s cannot send now: %s\n", spec.Name, info.Why)
		if info.Hint != "" {
			fmt.Fprintf(talk, "hint: %s\n", info.Hint)
		}
	}
	return nil
}
