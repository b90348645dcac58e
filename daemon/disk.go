package daemon

import (
	"os"

	"kith.dev/daemon/config"
	"kith.dev/daemon/doctor"
)

// kubelets is where a kubelet keeps what pods write, unless it is told otherwise.
const kubelets = "/var/lib/kubelet"

// disk tells what is free on the disk that pods of this machine's node write to; of a node whose disk this process does not see, nothing.
func (d *Daemon) disk() (node string, free int64) {
	path := d.cfg.DataDir
	if d.cfg.Engine != config.EngineBuiltin && d.cfg.K3sBinary == "" {
		path = kubelets
		if _, err := os.Stat(path); err != nil {
			return "", 0
		}
	}
	space, err := doctor.SpaceAt(path)
	if err != nil {
		return "", 0
	}
	return d.engine.Facts().NodeName, int64(space.Free)
}
