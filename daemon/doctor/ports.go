package doctor

import (
	"fmt"
	"strings"

	"kith.dev/core/api"
)

// process is who holds a port. PID 0: somebody, but only root may see who.
type process struct {
	pid  int
	name string
}

func (p process) String() string {
	if p.pid == 0 {
		return "a process that only root may see"
	}
	return fmt.Sprintf("%s (process %d)", p.name, p.pid)
}

// door is a port that must be Kith's.
type door struct {
	name    string // of the check
	network string // tcp or udp
	port    uint16
	what    string // it is for
	key     string // of the configuration, that moves it
	program string // whose it is: kithd or kith-k8s
}

func (m Machine) doors() []door {
	list := []door{{"peer-api", "tcp", m.PeerAPIPort, "peers", "peerAPIPort", "kithd"}}
	if m.HasTunnels {
		list = append(list, door{"wireguard", "udp", m.WireGuardPort, "the tunnels", "wireguardPort", "kithd"})
	}
	if m.APIServerPort != 0 {
		list = append(list, door{"api-server", "tcp", m.APIServerPort, "the local Kubernetes", "", "kith-k8s"})
	}
	return list
}

// judge says whether the right one holds the door.
func (m Machine) judge(d door, holders []process) api.Finding {
	in := about{area: api.AreaPorts}
	port := fmt.Sprintf("%s port %d", strings.ToUpper(d.network), d.port)
	move := "end it"
	if d.key != "" {
		move += ", or set " + d.key
	}
	running := m.PID != 0
	if len(holders) == 0 {
		if running {
			return in.fail(d.name, fmt.Sprintf("%s, for %s, is not open", port, d.what), "nobody listens there, though kithd runs", "see the log: journalctl -u kithd -e")
		}
		return in.ok(d.name, "%s, for %s, is free", port, d.what)
	}
	for _, p := range holders {
		switch {
		case d.program == "kithd" && running && p.pid == m.PID, d.program == "kith-k8s" && p.name == d.program:
			return in.ok(d.name, "%s listens on %s, for %s", d.program, port, d.what)
		case p.name == "kithd" && !running:
			return in.warn(d.name, fmt.Sprintf("%s is held by %s, which does not answer here", port, p), "it has another socket, or hangs", "name its socket with --socket; or restart it: systemctl restart kithd")
		case p.pid == 0:
			return in.warn(d.name, fmt.Sprintf("%s, for %s, is held by %s", port, d.what, p), "", "run kith doctor as root")
		}
	}
	return in.fail(d.name, fmt.Sprintf("%s, for %s, is taken by %s", port, d.what, holders[0]), "two programs cannot have the same port", move)
}
