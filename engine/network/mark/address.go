package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
)

// ranges is what the configuration says of addresses.
type ranges struct {
	Networks string            `json:"networks"` // folder with a file per namespace, a range as host-local takes it (kith.dev/core/guestnet)
	DataDir  string            `json:"dataDir"`  // host-local's
	Routes   []json.RawMessage `json:"routes"`
}

// The plugin that notes who has which address, and the start of the names by which it does so, one for each range: so a range goes
// round before an address is given again.
const (
	hostLocal = "host-local"
	notes     = "kith-guests"
)

// give asks host-local for a guest's address, out of the range that its namespace has at this moment.
func (r *ranges) give(args *skel.CmdArgs) error {
	guests, file, err := r.of(argument(args.Args, "K8S_POD_NAMESPACE"))
	if err != nil {
		return err
	}
	given, err := invoke.DelegateAdd(context.Background(), hostLocal, r.ask(notes+"-"+guests.Addr().String(), file), nil)
	if err != nil {
		return fmt.Errorf("%s: %v", hostLocal, err) // as a sentence, and not that plugin's error with its code
	}
	return given.Print()
}

// takeBack has an address given back whatever the files say by now.
func (r *ranges) takeBack() error {
	known, err := filepath.Glob(filepath.Join(r.DataDir, notes+"*"))
	for _, dir := range known {
		// The range does not matter to it, but that there is one.
		ask := r.ask(filepath.Base(dir), []byte(`{"subnet":"10.0.0.0/24"}`))
		err = errors.Join(err, invoke.DelegateDel(context.Background(), hostLocal, ask, nil))
	}
	return err
}

// of gives the range of a namespace, and its file.
func (r *ranges) of(namespace string) (guests netip.Prefix, file []byte, err error) {
	if namespace == "" || namespace != filepath.Base(namespace) || strings.HasPrefix(namespace, ".") {
		return guests, nil, fmt.Errorf("this network is for pods of a namespace, and %q is none", namespace)
	}
	path := filepath.Join(r.Networks, namespace)
	file, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the network of namespace %s is not known here yet: kithd writes %s once the laptops agreed on a range of addresses", namespace, path)
	}
	var says struct{ Subnet netip.Prefix }
	if err == nil && (json.Unmarshal(file, &says) != nil || !says.Subnet.IsValid()) {
		err = fmt.Errorf("%s names no subnet: kithd writes it anew when it starts", path)
	}
	return says.Subnet, file, err
}

// ask is what host-local is asked with, for a network and a range.
func (r *ranges) ask(network string, guests json.RawMessage) []byte {
	b, _ := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": network, "ipam": map[string]any{ // of parts that were JSON
		"type": hostLocal, "dataDir": r.DataDir, "routes": r.Routes, "ranges": [][]json.RawMessage{{guests}},
	}})
	return b
}
