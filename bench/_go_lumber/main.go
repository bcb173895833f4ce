// Reads Lumberjack v2 with go-lumber's own server, and acknowledges each window at once:
// nothing is stored.  It prints the port that it listens on.
//
//	go-lumber [ADDRESS [CERTIFICATE KEY [CLIENT_CA]]]
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/elastic/go-lumber/server"
)

func main() {
	address, files := "127.0.0.1:0", []string{}
	if len(os.Args) > 1 {
		address, files = os.Args[1], os.Args[2:]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if len(files) > 0 {
		listener = tls.NewListener(listener, encryption(files))
	}
	reader, err := server.NewWithListener(listener, server.V2(true))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(port)
	for batch := range reader.ReceiveChan() {
		batch.ACK()
	}
}

func encryption(files []string) *tls.Config {
	pair, err := tls.LoadX509KeyPair(files[0], files[1])
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	if len(files) > 2 {
		text, err := os.ReadFile(files[2])
		if err != nil {
			log.Fatal(err)
		}
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(text)
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config
}
