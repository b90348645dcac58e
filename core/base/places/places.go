// Package places says where Kith keeps its things on this system, and how its service is started, stopped and read about there: for kithd, and
// for programs that look for it or tell people what to do. It must never make or open what it names.
package places

import (
	"os"
	"os/user"
	"path/filepath"
	"runtime"
)

// Places are files and directories by their absolute paths, and commands for people.
type Places struct {
	Config string // the configuration file, which need not be there
	Data   string // what must survive a reboot
	Run    string // what need not
	Socket string // of the local API
	Group  string // whose members may use that; "": only root and the user kithd runs as
	Log    string // a file, for a service manager that keeps no log; "": it does

	Kubeconfig string // that leads to the owner's cluster, where Kith runs none of its own; "": it does

	// What to type.
	Start, Stop, ReadLog string
}

// Label is the name of kithd among the services of a Mac.
const Label = "dev.kith.kithd"

// Here are the places on this system.
func Here() Places { return Of(runtime.GOOS, home()) }

// Of are the places on a system (runtime.GOOS) for a user with that home directory. On a Mac kithd is a program of the user's; elsewhere it is the
// system's, and they are the same for everybody.
func Of(system, home string) Places {
	if system != "darwin" {
		return Places{
			Config: "/etc/kith/config.yaml", Data: "/var/lib/kith", Run: "/run/kith", Socket: "/run/kith/kith.sock", Group: "kith",
			Start: "sudo systemctl start kithd", Stop: "systemctl stop kithd", ReadLog: "journalctl -u kithd -e",
		}
	}
	// Of the Library, what is in Application Support is backed up, and Caches may be emptied by the system.
	data := filepath.Join(home, "Library", "Application Support", "Kith")
	log := filepath.Join(home, "Library", "Logs", "Kith", "kithd.log")
	return Places{
		Config: filepath.Join(data, "config.yaml"), Data: filepath.Join(data, "data"), Run: filepath.Join(data, "run"), Socket: filepath.Join(data, "run", "kith.sock"),
		Log: log, Kubeconfig: filepath.Join(home, ".kube", "config"),
		Start: "open Kith.app, or launchctl kickstart gui/$(id -u)/" + Label, Stop: "launchctl kill TERM gui/$(id -u)/" + Label, ReadLog: "tail '" + log + "'",
	}
}

// home is the user's. launchd sets HOME; where it is not set the system's directory knows.
func home() string {
	if dir, err := os.UserHomeDir(); err == nil {
		return dir
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		return u.HomeDir
	}
	return "/var/empty"
}
