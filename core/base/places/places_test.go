package places

import (
	"path/filepath"
	"strings"
	"testing"
)

// maxSocket is what sun_path holds on a Mac, with the byte that ends it (unix(4)); on Linux it is 108.
const maxSocket = 104

func TestOnAMacEverythingIsTheUsersOwn(t *testing.T) {
	home := "/Users/" + strings.Repeat("a", 32) // longer than macOS proposes any
	p := Of("darwin", home)
	for _, path := range []string{p.Config, p.Data, p.Run, p.Socket, p.Log, p.Kubeconfig} {
		if !strings.HasPrefix(path, home+"/") || !filepath.IsAbs(path) {
			t.Errorf("%q is not below the user's home", path)
		}
	}
	if len(p.Socket) >= maxSocket {
		t.Errorf("%q has %d bytes", p.Socket, len(p.Socket))
	}
	if filepath.Dir(p.Socket) != p.Run || p.Group != "" || p.Kubeconfig != home+"/.kube/config" {
		t.Errorf("%+v", p)
	}
	if p.Log != home+"/Library/Logs/Kith/kithd.log" { // where Console.app looks
		t.Error(p.Log)
	}
	for _, command := range []string{p.Start, p.Stop, p.ReadLog} {
		if strings.Contains(command, "systemctl") || strings.Contains(command, "journalctl") || strings.Contains(command, "sudo") {
			t.Error(command)
		}
	}
}

func TestElsewhereItIsTheSystems(t *testing.T) {
	p := Of("linux", "/home/alice")
	if p != Of("linux", "/root") || p.Socket != "/run/kith/kith.sock" || p.Group != "kith" || p.Kubeconfig != "" || p.Log != "" {
		t.Errorf("%+v", p)
	}
}
