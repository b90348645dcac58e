package join

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

// Joined reports whether this machine is a node already, by the files of a Join before: of the cluster that the options name, and as the node
// that they name. It is an error when it is another's, or its certificate has ended. Another address of the same server is noted.
func Joined(o Options, now time.Time) (bool, error) {
	config, err := clientcmd.LoadFromFile(o.kubeconfig())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w; kith-k8s agent reset makes this machine free to join again", o.kubeconfig(), err)
	}
	pem, err := os.ReadFile(o.authority())
	if err != nil {
		return false, err
	}
	if len(o.Hashes) > 0 {
		if _, err := pinned(pem, o.Hashes); err != nil {
			return false, errors.New("this machine is a node of another cluster than ca-cert-hash names: kith-k8s agent reset makes it free to join this one")
		}
	}
	held, err := cert.CertsFromFile(filepath.Join(o.CertDir, "kubelet-client-current.pem"))
	if err != nil {
		return false, fmt.Errorf("this node's certificate: %w; kith-k8s agent reset makes this machine free to join again", err)
	}
	if name := held[0].Subject.CommonName; name != nodeUser+o.NodeName {
		return false, fmt.Errorf("this machine is node %s, not %s: give its --node-name, or kith-k8s agent reset to join by another", name[min(len(nodeUser), len(name)):], o.NodeName)
	}
	if ended(held[0], now) {
		if o.Token != (Token{}) {
			return false, nil // it joins again, by its key
		}
		return false, fmt.Errorf("this node's certificate ended on %s: kubectl delete node %s on the server, and join again with a new token (kith-k8s token create)", held[0].NotAfter.Format(time.DateOnly), o.NodeName)
	}
	for _, c := range config.Clusters {
		if o.Server == "" || c.Server == o.Server {
			continue
		}
		c.Server = o.Server
		return true, clientcmd.WriteToFile(*config, o.kubeconfig())
	}
	return true, nil
}

// ServerOf is the server of the cluster that a machine with this data folder joined, https://ADDRESS:PORT; "" when it is none's.
func ServerOf(dataDir string) string {
	config, err := clientcmd.LoadFromFile(Options{Dir: filepath.Join(dataDir, "pki")}.kubeconfig())
	if err != nil {
		return ""
	}
	for _, c := range config.Clusters {
		return c.Server
	}
	return ""
}

func ended(c *x509.Certificate, now time.Time) bool { return now.After(c.NotAfter) }

// Forget makes this machine free to join: it is a node no more as far as it knows. The cluster is told by kubectl delete node.
func Forget(o Options) error {
	var errs []error
	for _, path := range []string{o.kubeconfig(), o.authority(), o.CertDir} {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}
