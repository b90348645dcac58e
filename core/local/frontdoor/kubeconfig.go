package frontdoor

import (
	"fmt"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is a kubeconfig that leads to the front door as this user, YAML. It holds a private key, which is kept nowhere else.
func (d *Door) Kubeconfig(user User) ([]byte, error) {
	if user.Name == "" || strings.ContainsRune(user.Name, ':') { // system:… and kith:… are Kubernetes' and Kith's own
		return nil, fmt.Errorf("a user named %q cannot be a user of Kubernetes", user.Name)
	}
	if err := d.cfg.Allowed(user); err != nil {
		return nil, err
	}
	cert, key, authorities, err := d.authority.admit(user)
	if err != nil {
		return nil, err
	}
	const name = "kith"
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: "https://" + d.cfg.Address.String(), CertificateAuthorityData: authorities}
	config.AuthInfos[user.Name] = &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user.Name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}
