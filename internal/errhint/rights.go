package errhint

import "os"

// Rights returns the hint for what the kernel refuses to a process without capabilities, such as "CAP_NET_ADMIN". Root may lack
// them too, as in a container.
func Rights(capabilities string) string { return rights(os.Geteuid() == 0, capabilities) }

func rights(root bool, capabilities string) string {
	if root {
		return "root lacks " + capabilities + " here, as in a container: grant it to the container or the service"
	}
	return "run as root or with " + capabilities
}
