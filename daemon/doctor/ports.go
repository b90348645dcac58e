package doctor

import (
	"fmt"
	"strings"

	"kith.dev/core/api"
	"kith.dev/core/net/netplan"
	"kith.dev/daemon/config"
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

// listener is a port that must be Kith's.
type listener struct {
	name    string // of the check
	network string // tcp or udp
	port    uint16
	what    string // it is for
	key     string // of the configuration, that moves it
	program string // whose it is: kithd, kith-k8s or k3s
}

func (m Machine) listeners() []listener {
	list := []listener{{"peer-api", "tcp", m.PeerAPIPort, "peers", "peerAPIPort", "kithd"}}
	if m.Engine != config.EngineNone {
		list = append(list, listener{"wireguard", "udp", m.WireGuardPort, "the tunnels", "wireguardPort", "kithd"})
	}
	if m.RunsCluster() {
		program := "kith-k8s"
		if m.Engine == config.EngineK3s {
			program = "k3s" // and k3s-server, as it calls itself once it has unpacked itself
		}
		list = append(list, listener{"api-server", "tcp", netplan.APIPort, "the local Kubernetes", "", program})
	}
	if m.Engine != config.EngineNone && m.FrontDoorPort != 0 {
		list = append(list, listener{"front-door", "tcp", m.FrontDoorPort, "kubectl", "frontDoorPort", "kithd"})
	}
	return list
}

// judge says whether the right one holds the port.
func (m Machine) judge(l listener, holders []process) api.Finding {
	in := about{area: api.AreaPorts}
	port := fmt.Sprintf("%s port %d", strings.ToUpper(l.network), l.port)
	move := "end it"
	if l.key != "" {
		move += ", or set " + l.key
	}
	running := m.PID != 0
	if len(holders) == 0 {
		if running {
			return in.fail(l.name, fmt.Sprintf("%s, for %s, is not open", port, l.what), "nobody listens there, though kithd runs", "see the log: journalctl -u kithd -e")
		}
		return in.ok(l.name, "%s, for %s, is free", port, l.what)
	}
	held := false
	for _, p := range holders {
		switch {
		case l.program == "kith-k8s" && running && p.pid == m.PID:
			held = true // and the engine too, unless it sleeps or starts
		case l.program == "kithd" && running && p.pid == m.PID, l.program == "kith-k8s" && p.name == l.program, l.program == "k3s" && strings.HasPrefix(p.name, l.program):
			return in.ok(l.name, "%s listens on %s, for %s", l.program, port, l.what)
		case p.name == "kithd" && !running:
			return in.warn(l.name, fmt.Sprintf("%s is held by %s, which does not answer here", port, p), "it has another socket, or hangs", "name its socket with --socket; or restart it: systemctl restart kithd")
		case p.pid == 0:
			return in.warn(l.name, fmt.Sprintf("%s, for %s, is held by %s", port, l.what, p), "it may be kithd itself, or a program in its place", "look again as root: sudo kith doctor")
		}
	}
	if held {
		return in.ok(l.name, "kithd keeps %s, for %s that it starts", port, l.what)
	}
	return in.fail(l.name, fmt.Sprintf("%s, for %s, is taken by %s", port, l.what, holders[0]), "two programs cannot have the same port", move)
}
